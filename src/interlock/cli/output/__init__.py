"""What commands print: terminal, progress, diagnostics, values."""
