"""What the SQL stores share: what an append changes, and the questions behind every list, count and check.

No database driver is imported here. SQLite and PostgreSQL supply the statements and run them.
"""
