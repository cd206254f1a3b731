"""Protocols to the outside, a few lines each: what drivers and workers need of stores, clocks and doors.

Refuses base classes: conformance is proved by a suite (`interlock.testing.store_suite.suite`), not by inheritance.
"""
