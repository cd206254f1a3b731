"""The composition root: the only code that knows every format, store and bus by name."""
