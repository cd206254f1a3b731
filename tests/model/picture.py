"""Draws an interleaving as a Mermaid sequence diagram, from top to bottom."""

from __future__ import annotations

from tests.model.explorer import Violation, describe


def sequence_diagram(violation: Violation) -> str:
    """Return the diagram of the path to a violation. The processes are in the order of their first steps."""
    names = list(dict.fromkeys(step.process for step in violation.steps))
    short = {name: f"P{number}" for number, name in enumerate(names)}
    lines = ["sequenceDiagram"]
    lines += [f"  participant {short[name]} as {name}" for name in names]
    lines.append("  participant M as shared memory")
    for step in violation.steps:
        me = short[step.process]
        if step.operation is None:
            lines.append(f"  Note over {me}: SIGKILL")
        elif step.operation.kind in {"pause", "sleeping"}:
            lines.append(f"  Note over {me}: {describe(step)}")
        else:
            lines.append(f"  {me}->>M: {describe(step)}")
    lines.append(f"  Note over {short[names[0]]},M: {violation.what}")
    return "\n".join(lines)
