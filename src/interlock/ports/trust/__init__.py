"""Protocols of trust: who may do what, keys of personal data, the audit and retention of a store."""
