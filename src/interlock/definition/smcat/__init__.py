"""State machine cat definitions, read and written."""
