"""Sends in a transaction of the caller: the adapters of the database drivers, and what happens after the COMMIT.

No driver is imported: an adapter is chosen by the class of the connection. It contains no SQL and no rule of a store.
"""
