"""Charts as values, and what is computed from a chart once: its sites, its personal fields, its events."""
