"""`everstep completion`: print the script that completes commands, options, runs and refs in a shell."""

from __future__ import annotations

import click

from everstep.cli.app import App
from everstep.cli.app import command as make

_INSTALL = {
    "bash": 'eval "$(everstep completion bash)"    # in ~/.bashrc',
    "zsh": 'eval "$(everstep completion zsh)"    # in ~/.zshrc',
    "fish": "everstep completion fish | source    # in ~/.config/fish/config.fish",
}


@make("completion")
@click.argument("shell", type=click.Choice(list(_INSTALL)))
def command(app: App, shell: str) -> None:
    """Print the completion script for bash, zsh or fish

    Example: eval "$(everstep completion bash)"
    """
    from click.shell_completion import get_completion_class

    from everstep.cli.main import group

    found = get_completion_class(shell)
    if found is None:
        raise click.UsageError(f"completion is not available for {shell}")
    script = found(group, {}, "everstep", "_EVERSTEP_COMPLETE").source()
    if app.out.as_json:
        app.out.data("completion", {"shell": shell, "script": script})
        return
    app.out.raw(script)
    app.out.say(f"To install it permanently: {_INSTALL[shell]}")
