"""Jobs over many entities: bulk send, dry run and verification. Durable jobs are entities in the store (ADR 0027)."""
