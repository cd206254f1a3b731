"""The worker: runs effects and timers of a store, in threads and processes, and stops cleanly."""
