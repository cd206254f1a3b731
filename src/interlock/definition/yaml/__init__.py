"""YAML definitions, read and written."""
