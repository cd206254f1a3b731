"""A definition as a value: states, transitions, actions, fields and targets, with their positions."""
