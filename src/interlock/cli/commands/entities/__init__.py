"""Commands about entities: create, send, show, list, their history, their work, and what is stuck."""
