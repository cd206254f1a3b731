"""Commands that change charts under living entities: definitions of a store, migrations, roll-outs, shadow runs."""
