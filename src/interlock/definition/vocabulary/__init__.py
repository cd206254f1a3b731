"""The keys of a definition: their names, values and meaning."""
