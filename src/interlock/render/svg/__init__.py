"""Drawings as SVG and PNG: painter, theme."""
