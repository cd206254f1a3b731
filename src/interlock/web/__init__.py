"""The console: an HTTP interface over a runtime, live streams, and the pages that use them. Needs the extra `web`.

Refuses to decide: who may send what is the chart's and the runtime's to say; here requests are read and answered.
"""
