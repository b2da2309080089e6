"""The command line: thin verbs over the library; every one has --help and --json."""

from __future__ import annotations

import os
import signal
from typing import Any

import click

from noisette.cli.audit import audit
from noisette.cli.demo import demo
from noisette.cli.estimate import estimate
from noisette.cli.federate import federate
from noisette.cli.mechanisms import mechanisms
from noisette.cli.plan import plan
from noisette.cli.privatize import privatize
from noisette.cli.report import report
from noisette.cli.reproduce import reproduce
from noisette.cli.serve import serve
from noisette.cli.train import train


class _BadInput(click.ClickException):
    """Something was wrong with what the user gave."""

    exit_code = 2


class _Verbs(click.Group):
    """A group whose commands fail with a message: exit code 2 for what the user gave, 1 for what went wrong here."""

    def invoke(self, context: click.Context) -> Any:
        """Run a command."""
        if os.environ.get("NOISETTE_DEBUG"):
            return super().invoke(context)
        try:
            return super().invoke(context)
        except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise
        except (ValueError, TypeError, FileNotFoundError, IsADirectoryError, PermissionError) as error:
            raise _BadInput(str(error)) from error
        except OSError as error:
            raise click.ClickException(f"{error}.") from error
        except Exception as error:
            reason = f"{type(error).__name__}: {error}. Set NOISETTE_DEBUG=1 to see where."
            raise click.ClickException(reason) from error


@click.group(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80})
@click.version_option(package_name="noisette")
def verbs() -> None:
    """Collect statistics about people without collecting their data.

    Plan a collection, privatise a table under local differential privacy, and estimate means, frequencies and
    distributions from the reports.
    """


for _command in (mechanisms, plan, privatize, estimate, train, federate, audit, reproduce, serve, report, demo):
    verbs.add_command(_command)


def main() -> None:
    """Run the command line; SIGTERM ends it as an error would, so that nothing half-written stays behind."""
    signal.signal(signal.SIGTERM, _leave)
    verbs(prog_name="noisette")


def _leave(*_: object) -> None:
    raise SystemExit(128 + signal.SIGTERM)
