"""Diagrams as text: Mermaid, PlantUML and DOT."""
