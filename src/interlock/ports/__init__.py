"""Protocols to the outside, a few lines each: what a driver needs of a store and of a clock.

Refuses base classes: conformance is proved by a suite (`interlock.testing.store_suite`), not by inheritance.
"""
