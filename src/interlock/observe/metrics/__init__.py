"""Metrics in the format of Prometheus, and alert rules and dashboards made from charts.

The process counts integers (`counters`), asks the store at a scrape (`store_gauges`), and renders both (`exposition`).
No metric has an entity, a principal, a key or a revision as a label, and no kind with hidden states has a metric.
"""
