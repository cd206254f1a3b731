"""Protocols to the outside, a few lines each: what runtimes and workers need of stores, clocks, buses and gates.

Refuses base classes: conformance is proved by a suite (`interlock.testing.store_suite.suite`), not by inheritance.
"""
