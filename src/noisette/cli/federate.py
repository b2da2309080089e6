"""`noisette federate`: learning across devices, and the service that stands between them and the server."""

from __future__ import annotations

import click

from noisette.cli.federate_run import run
from noisette.cli.shuffler import enrol, key, run_shuffler


class _RunByDefault(click.Group):
    """A group for which options without a command are those of `run`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the command in where options come first."""
        if args and args[0].startswith("-") and args[0] not in ctx.help_option_names:
            args = [run.name or "run", *args]
        return super().parse_args(ctx, args)


@click.group(cls=_RunByDefault)
def federate() -> None:
    """Learn across devices without collecting their data.

    Options without a command are those of `run`. Every command has --help and --json.
    """


for _command in (run, enrol, key):
    federate.add_command(_command)
federate.add_command(run_shuffler, "shuffler")
