"""The PostgreSQL store: one statement per commit, connections per event loop, the server's clock."""
