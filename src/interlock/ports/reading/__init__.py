"""Protocols of reading: the feed of a store, projections, counters, indexes on fields, and lists page by page."""
