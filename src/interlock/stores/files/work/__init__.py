"""Work in the file store: which entities have some, and the one process that runs it."""
