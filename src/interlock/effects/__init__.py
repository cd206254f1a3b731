"""What happens after an append: handlers, timers, sends, children and messages.

Work is born in the entry that causes it and ends in the entry that answers it; nothing here writes a snapshot.
"""
