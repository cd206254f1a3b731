"""A small world that runs by itself: two trades, services that fail, and people who want something.

It shows what the console and the commands are for. It is no library: nothing outside `interlock demo` uses it.
"""
