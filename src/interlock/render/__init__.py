"""Draw charts: SVG and PNG, Mermaid, Graphviz, PlantUML; and write their Python types.

A drawing is made from the chart that runs, so the two cannot differ. Nothing here writes files or starts programs, and
the same chart always gives the same text.
"""
