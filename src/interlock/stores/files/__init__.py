"""The file store: one directory per entity, a journal of JSON lines, a snapshot as a cache."""
