"""Work on journals: replay, time travel, verification, archives."""
