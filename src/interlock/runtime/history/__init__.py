"""What a journal answers: replay, time travel, verification, archives."""
