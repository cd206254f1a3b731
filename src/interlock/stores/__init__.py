"""Where journals live and are compared and swapped: memory, files, SQLite, PostgreSQL.

A store knows no charts: it keeps records, remembers keys and swaps versions. It retries nothing.
"""
