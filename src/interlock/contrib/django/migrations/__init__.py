"""Migrations of Django that run those of the store: one for each release that changes the tables."""
