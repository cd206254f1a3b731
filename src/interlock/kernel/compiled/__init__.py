"""Compiled steps: the same steps as those of the general path, as generated Python functions.

`compiler` makes the functions of one event in one configuration, `step_writer` follows the microsteps, `part_writer`
writes the statements of parts and actions, `assignment_writer` those of assignments, and `function_writer` the checks
at the start of a function. `branch` is what they know at one point of the source, and `calls` are the functions that
generated source calls. Nothing here defines semantics: plans, guards and expressions are those of the general step, and
whatever cannot be written stays on the general path.
"""
