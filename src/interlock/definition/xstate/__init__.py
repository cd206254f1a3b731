"""XState JSON definitions, read and written."""
