"""The write path: one entity at a time, its snapshot, a send or a move, and the append. It knows no public argument."""
