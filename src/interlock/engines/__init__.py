"""Drivers inside durable-execution systems of other vendors: a package each, which do not import each other."""
