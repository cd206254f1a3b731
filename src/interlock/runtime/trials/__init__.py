"""Trials of a chart on recorded or live events: shadow runs, refolds, and their saved reports.

Only a refold writes to entities, and only on request.
"""
