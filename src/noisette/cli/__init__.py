"""The command line: thin verbs over the library; every one has --help and --json."""

from __future__ import annotations

import os
import re
import signal
from importlib import import_module
from typing import Any

import click

# What `noisette --help` lists, and in which room. Each is the command of that name in the module of that name there,
# imported when it is run.
_COMMANDS = {
    "mechanisms": ("evidence", "List the mechanisms, and whether their published claims hold."),
    "plan": ("surveys", "Predict every mechanism's error before anything is collected."),
    "privatize": ("surveys", "Turn a table of raw data into a file of private reports."),
    "estimate": ("surveys", "Estimate means or frequencies from report files."),
    "train": ("learning", "Train a private model."),
    "federate": ("learning", "Learn across devices without collecting their data."),
    "audit": ("evidence", "Compare what is claimed of a mechanism with what holds."),
    "board": ("evidence", "Compare methods by task on real data, at one true guarantee."),
    "certify": ("evidence", "Write a certificate of a mechanism or a survey that anybody can check."),
    "verify": ("evidence", "Check a certificate; the exit status is 0 only if it is proved."),
    "reproduce": ("evidence", "Run a paper's experiments again."),
    "serve": ("services", "Run a collector: receive reports, estimate, show a dashboard."),
    "collector": ("services", "Operate a collector: campaigns, keys, backups."),
    "shuffler": ("services", "Run or operate a service that hides who sent what."),
    "report": ("services", "Answer a collector's campaign for the users in a file."),
    "demo": ("services", "See all of it in a minute, with simulated devices."),
}


class _BadInput(click.ClickException):
    """Something was wrong with what the user gave."""

    exit_code = 2


class _Verbs(click.Group):
    """A group whose commands fail with a message: exit code 2 for what the user gave, 1 for what went wrong here."""

    def list_commands(self, context: click.Context) -> list[str]:
        """Return the names of the commands."""
        return list(_COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        """Import a command."""
        if name not in _COMMANDS:
            return None
        command: click.Command = getattr(import_module(f"noisette.cli.{_COMMANDS[name][0]}.{name}"), name)
        return command

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands, none of which is imported for it."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in _COMMANDS.items()])

    def invoke(self, context: click.Context) -> Any:
        """Run a command."""
        if os.environ.get("NOISETTE_DEBUG"):
            return super().invoke(context)
        try:
            return super().invoke(context)
        except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise
        except (FileNotFoundError, IsADirectoryError, PermissionError) as error:
            raise _BadInput(_sentence(error)) from error
        except (ValueError, TypeError) as error:
            raise _BadInput(str(error)) from error
        except OSError as error:
            raise click.ClickException(_sentence(error)) from error
        except Exception as error:
            ours = type(error).__module__.startswith("noisette.")  # such errors say what to do
            unforeseen = f"{type(error).__name__}: " if type(error).__module__ == "builtins" else ""
            reason = str(error) if ours else f"{unforeseen}{_sentence(error)} Set NOISETTE_DEBUG=1 to see where."
            raise click.ClickException(reason) from error


def _sentence(error: Exception) -> str:
    """Return what went wrong as one sentence, with the file and without the number that the system has for it."""
    said = str(error)
    if isinstance(error, OSError) and error.filename is not None:
        said = f"{error.filename}: {error.strerror}"
    said = re.sub(r"\[Errno -?\d+\] ", "", said).rstrip(".")
    return f"{said or type(error).__name__}."


@click.group(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80})
@click.version_option(package_name="noisette")
def verbs() -> None:
    """Collect statistics about people without collecting their data.

    Plan a collection, privatise a table under local differential privacy, and estimate means, frequencies and
    distributions from the reports.
    """


def main() -> None:
    """Run the command line; SIGTERM ends it as an error would, so that nothing half-written stays behind."""
    signal.signal(signal.SIGTERM, _leave)
    verbs(prog_name="noisette")


def _leave(*_: object) -> None:
    raise SystemExit(128 + signal.SIGTERM)
