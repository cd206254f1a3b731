"""Retention: remove entities that ended long ago, and old entries of living ones, while the store is in use.

`rules` says what may go by age, `needs` what must stay because something still needs it, `run` does it, and `record`
writes down what was removed. The store's part is `ports.retention`.
"""
