"""Drivers inside durable-execution systems of other vendors. Each engine is a package; they do not import each other."""
