"""Commands about definitions: check, compare, convert, draw, simulate, create a project."""
