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

    `noisette-verify FILE` does the same without this library. This command also builds what the certificate describes,
    and checks that this version of the library draws by the certified law.
    """
    import noisette_verify
    from noisette._terminal import to_json
    from noisette.certificates import Certificate, CertificateError, run_from_spec
    from noisette.mechanisms import from_spec
    from noisette.survey.survey import Survey

    verdict = noisette_verify.verify(file.read_bytes())
    built = False
    reason, theorems = verdict.reason, list[str]()
    if verdict.proved:
        certificate = Certificate.read(file)
        spec, theorems = certificate.spec(), certificate.fields["theorems"]
        try:
            built_from: Any = run_from_spec if "run" in spec else Survey.from_spec if "questions" in spec else from_spec
            certificate.check(built_from(spec))
            built = True
        except (CertificateError, ValueError, TypeError) as error:
            reason = f"The law is proved, but this library does not draw by it: {error}"
    if as_json:
        click.echo(to_json({"proved": verdict.proved and built, "reason": reason, "theorems": theorems}))
    elif verdict.proved and not built:
        click.echo(f"NOT PROVED: {reason}")
    else:
        click.echo(f"{verdict}" + ("\nThis library draws by the certified law and no other." if built else ""))
    context.exit(0 if verdict.proved and built else 1)
