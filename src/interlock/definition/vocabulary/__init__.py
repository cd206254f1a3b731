"""The keys of a definition: what each is called, which values it takes, what it means."""
