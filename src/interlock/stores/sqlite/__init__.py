"""The SQLite store: one writer connection that commits batches, readers in threads."""
