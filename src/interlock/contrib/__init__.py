"""Small adapters for frameworks. They contain no SQL and no rule; a framework that is not installed is not imported."""
