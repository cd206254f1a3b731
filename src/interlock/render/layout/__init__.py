"""Layered layout: where boxes and wires of a drawing lie."""
