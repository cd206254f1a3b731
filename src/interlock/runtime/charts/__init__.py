"""Which chart runs an entity: the charts of this process, stored definitions, upgrades and roll-outs.

It refuses a revision that neither this process nor the store has.
"""
