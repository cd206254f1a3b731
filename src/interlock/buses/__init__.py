"""Buses that messages are published to and read from: one module for each kind, by the scheme of its address.

A bus knows no entities or charts, and never loses a message silently.
"""
