"""What a definition must and should fulfil: errors, warnings and lints with stable codes."""
