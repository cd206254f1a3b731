"""The journal of one entity: its segments, lines, snapshot file and unfinished work."""
