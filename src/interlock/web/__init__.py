"""The web console: an HTTP API for a runtime, live streams, and the pages that use them. Needs the extra `web`.

It makes no decisions: the chart and the runtime decide which events a user may send.
"""
