"""`interlock completion`: the completion script of a shell."""

from __future__ import annotations

import click

from interlock.cli import exit_codes
from interlock.cli.options import common, example, pass_terminal
from interlock.cli.output.terminal import Terminal


@example(
    'eval "$(interlock completion bash)"', 'eval "$(interlock completion zsh)"', "interlock completion fish | source"
)
@click.command
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")), metavar="SHELL")
@common
@pass_terminal
def completion(terminal: Terminal, shell: str) -> int:
    """SHELL is bash, zsh or fish. Add the example for your shell to its startup file."""
    from click.shell_completion import get_completion_class

    from interlock.cli.main import commands

    found = get_completion_class(shell)
    assert found is not None
    terminal.data(found(commands, {}, "interlock", "_INTERLOCK_COMPLETE").source() + "\n")
    return exit_codes.OK
