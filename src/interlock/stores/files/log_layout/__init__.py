"""Layout C of the file store: one write-ahead log for the journals of all entities."""
