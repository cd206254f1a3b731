"""Reading of many entities: for a reader with rights, by fields, by counts, and by the feed.

Nothing here writes an entry.
"""
