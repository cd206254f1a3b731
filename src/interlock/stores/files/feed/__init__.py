"""The feed of a root: an order over the entries of all entities, which the journals themselves do not have."""
