"""What happens after an append: handlers, timers, sends, children and messages.

Work is created in the entry that causes it and ends in the entry of its result; nothing here writes a snapshot.
"""
