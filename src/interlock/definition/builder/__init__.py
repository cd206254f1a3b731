"""Definitions written in Python: the functions behind `interlock.build`."""
