"""Commands that operate a store: run, serve, doctor, maintenance, indexes, the demo."""
