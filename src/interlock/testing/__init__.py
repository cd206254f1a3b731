"""The public test kit: a simulation of charts, a virtual clock, playback, and the suite for stores.

It has no side effects outside the process, and delivers as every driver does.
"""
