"""Commands of `manage.py`, each in the module of its name."""
