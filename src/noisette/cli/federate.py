"""`noisette federate`: learning across devices, and the service that stands between them and the server."""

from __future__ import annotations

import click

from noisette.cli.shuffler import enrol, key, shuffler


@click.group()
def federate() -> None:
    """Learn across devices without collecting their data.

    Every command has --help and --json.
    """


for _command in (shuffler, enrol, key):
    federate.add_command(_command)
