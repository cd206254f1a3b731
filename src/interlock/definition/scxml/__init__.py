"""SCXML definitions, read and written."""
