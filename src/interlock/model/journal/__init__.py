"""What a journal holds: entries, records with their hash chain, work and messages."""
