"""Where messages go and come from: one module for each kind of bus, by the scheme of its address.

It refuses: to know entities or charts, and to lose a message in silence.
"""
