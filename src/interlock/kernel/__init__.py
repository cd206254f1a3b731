"""The step: one pure function from a chart, a snapshot and an event to the next snapshot and the effects.

Refuses a clock, chance, I/O, threads and logs: time and ids arrive inside the event, and what should happen outside
leaves as a value. Checks nothing about the chart; the compiler has done that.
"""
