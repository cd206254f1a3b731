"""Values as bytes and text: canonical JSON, conversion of Python values, keys of indexes, text that can be stored."""
