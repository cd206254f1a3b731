"""The step: one pure function from a chart, a snapshot and an event to the next snapshot and the effects.

No clock, randomness, I/O, threads or logs: time and ids are in the event, and effects are returned as values. The
compiler has checked the chart.
"""
