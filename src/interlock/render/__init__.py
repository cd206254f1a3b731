"""From a chart to diagram text: Mermaid, Graphviz, PlantUML.

Describes the very chart that runs, so a diagram cannot drift from it. Refuses to write files or start programs: it
returns text, and the same chart always gives the same text.
"""
