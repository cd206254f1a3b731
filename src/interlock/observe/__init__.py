"""Read-only questions about a store: populations, rates, history, sagas. Prints nothing, knows no HTTP."""
