"""Jobs over many entities: bulk send, dry run and verification, as entities in the store."""
