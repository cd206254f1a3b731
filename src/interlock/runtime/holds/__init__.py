"""Holds: entities and kinds that an operator has stopped for a while. How they are known, kept and ended."""
