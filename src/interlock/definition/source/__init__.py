"""Source text to positioned nodes: JSON, XML, numbers and lines, within limits."""
