"""The demo: orders and virtual machines that run by themselves, with services that fail.

It shows what the console and the commands are for. It is not a library: only `interlock demo` uses it.
"""
