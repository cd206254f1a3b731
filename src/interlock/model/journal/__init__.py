"""The content of journals: entries, records with their hash chain, work and messages."""
