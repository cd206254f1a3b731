"""Commands of trust: audit, API keys, personal data and its keys, retention."""
