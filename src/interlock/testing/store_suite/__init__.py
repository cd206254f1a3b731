"""The public suite that every store must pass."""
