"""Reconcilers: level-based loops that compare wanted with actual and answer with an event."""
