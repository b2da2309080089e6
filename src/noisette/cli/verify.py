"""`noisette verify`: check a certificate with the program that knows nothing of this library."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click


@click.command()
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def verify(context: click.Context, file: Path, as_json: bool) -> None:
    """Prove what a certificate promises, with integers and fractions; the exit status is 0 only if it is proved.

    `noisette-verify FILE` is the same without this library. Here, beside, what the certificate describes is built, and
    its law compared with the certified one: that it is this law which the library of this version draws by.
    """
    import noisette_verify
    from noisette._terminal import to_json
    from noisette.certificates import Certificate, CertificateError, run_from_spec
    from noisette.mechanisms import from_spec
    from noisette.survey.survey import Survey

    verdict = noisette_verify.verify(file.read_bytes())
    built = False
    reason = verdict.reason
    if verdict.proved:
        certificate = Certificate.read(file)
        spec = certificate.spec()
        try:
            built_from: Any = run_from_spec if "run" in spec else Survey.from_spec if "questions" in spec else from_spec
            certificate.check(built_from(spec))
            built = True
        except (CertificateError, ValueError, TypeError) as error:
            reason = f"The law is proved, but this library does not draw by it: {error}"
    if as_json:
        click.echo(to_json({"proved": verdict.proved and built, "reason": reason, "theorems": verdict.theorems}))
    elif verdict.proved and not built:
        click.echo(f"NOT PROVED: {reason}")
    else:
        click.echo(f"{verdict}" + ("\nThis library draws by the certified law and no other." if built else ""))
    context.exit(0 if verdict.proved and built else 1)
