"""`noisette shuffler`: run one, and operate one that runs; and the keys that it needs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from noisette._files import need_packages

_NEEDED = ("The shuffler", ("cryptography", "fastapi", "httpx", "prometheus_client", "uvicorn"), "shuffler")
_FILE = click.Path(path_type=Path)


@click.group()
def shuffler() -> None:
    """Run a service that hides from the server which client sent what, and operate it.

    `run` starts it. The other commands ask a shuffler that runs, at --url with the key of an operator; whatever they do
    is an HTTP route as well. Every command has --help and --json.
    """


@click.command("run")
@click.option("--clients", "client_file", type=_FILE, required=True, help="JSON: enrolled clients, as enrol writes it.")
@click.option("--server", required=True, help="URL of the server that receives the batches.")
@click.option("--credentials", type=_FILE, required=True, help="JSON: the shuffler's name and secret at the server.")
@click.option("--minimum", type=click.IntRange(min=2), required=True, help="Clients that a batch must have.")
@click.option(
    "--patience",
    type=click.FloatRange(min=0),
    default=0.0,
    show_default=True,
    help="Seconds to wait for more clients once the minimum is reached.",
)
@click.option("--store", type=_FILE, default=Path("shuffler.db"), show_default=True, help="File of accepted packets.")
@click.option("--max-store", type=click.IntRange(min=1), default=16384, show_default=True, help="Its limit in MiB.")
@click.option(
    "--keep",
    type=click.FloatRange(min=1),
    default=400.0,
    show_default=True,
    help="Days without a packet after which a round is over.",
)
@click.option("--operators", "operator_file", type=_FILE, help="JSON: names and keys of its operators.")
@click.option("--max-body", type=click.IntRange(min=1), help="Largest post in bytes; 4 MiB by default.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=8100, show_default=True, help="0 takes a free one.")
@click.option("--allow-origin", "origins", multiple=True, metavar="URL", help="Site whose pages may send.")
@click.option("--certificate", type=_FILE, help="PEM file: serve HTTPS with it.")
@click.option("--key", "private_key", type=_FILE, help="PEM file: the certificate's private key.")
@click.option("--authority", type=_FILE, help="PEM file: who signed the server's certificate.")
@click.option("--json", "as_json", is_flag=True, help="Print the address as JSON.")
def run_shuffler(
    client_file: Path,
    server: str,
    credentials: Path,
    minimum: int,
    patience: float,
    store: Path,
    max_store: int,
    keep: float,
    operator_file: Path | None,
    max_body: int | None,
    host: str,
    port: int,
    origins: tuple[str, ...],
    certificate: Path | None,
    private_key: Path | None,
    authority: Path | None,
    as_json: bool,
) -> None:
    """Hide from the server which client sent what.

    Takes sealed packets from enrolled clients, waits until --minimum of them have sent each block of a round, and
    forwards them to the server in random order without their origin. A packet that was acknowledged is on the disk,
    and is forwarded once. SIGTERM ends the service after the requests that have begun.
    """
    need_packages(*_NEEDED)
    from noisette._service import Tls, address, listen, run
    from noisette._terminal import console, literal, to_json
    from noisette.shuffler._http import LARGEST_BODY, Operators
    from noisette.shuffler.clients import Clients, read_credentials
    from noisette.shuffler.forwarding import log
    from noisette.shuffler.receiver import PATH
    from noisette.shuffler.sender import Http
    from noisette.shuffler.service import create_app
    from noisette.shuffler.store import Shuffler

    if (certificate is None) != (private_key is None):
        raise ValueError("Give --certificate and --key together.")
    tls = Tls(certificate, private_key) if certificate and private_key else None
    clients = Clients.read(client_file)
    if len(clients) < minimum:
        raise ValueError(f"Expected --minimum {minimum} <= {len(clients)}, the number of clients in {client_file}.")
    name, secret = read_credentials(credentials)
    target = Http(server, client=name, secret=secret, path=PATH, attempts=1, authority=authority)
    operators = Operators.read(operator_file) if operator_file else None
    opened = Shuffler(store, minimum=minimum, patience=patience, largest=max_store * 2**20, keep=keep)
    largest = max_body or LARGEST_BODY
    app = create_app(opened, clients, target, largest_body=largest, origins=origins, operators=operators)
    bound = listen(host, port)
    url = address(host, bound, tls)
    if as_json:
        click.echo(to_json({"url": url, "clients": len(clients), "minimum": minimum}))
    else:
        out = console()
        out.print(f"{len(clients)} clients enrolled; a batch has at least {minimum} of them")
        out.print(literal(f"Listening on {url}"), soft_wrap=True)
    run(app, bound, log, tls=tls)


@click.command()
@click.argument("file", type=_FILE)
@click.argument("names", nargs=-1)
@click.option("--to", "folder", type=_FILE, help="Folder for the clients' own files; that of FILE by default.")
@click.option("--json", "as_json", is_flag=True, help="Print the files as JSON.")
def enrol(file: Path, names: tuple[str, ...], folder: Path | None, as_json: bool) -> None:
    """Add clients to FILE, with a new secret each.

    FILE is for the shuffler, which follows its changes while it runs, and holds no secret. Each client gets NAME.json,
    which alone holds its own. The same command makes the secret between the shuffler and the server. Without names it
    only takes the secrets out of a FILE of an older version.
    """
    need_packages(*_NEEDED)
    from noisette.shuffler.clients import enrol as add

    made = [str(path) for path in add(file, names, folder=folder or file.parent)]
    click.echo(json.dumps({"files": made}) if as_json else "\n".join(made))


@click.command()
@click.argument("file", type=_FILE)
@click.option("--rotate", is_flag=True, help="Add a new key; what was sealed to older ones can still be opened.")
@click.option("--retire", is_flag=True, help="Keep the newest key only; what was sealed to others is lost.")
@click.option("--json", "as_json", is_flag=True, help="Print the key as JSON.")
def key(file: Path, rotate: bool, retire: bool, as_json: bool) -> None:
    """Show the server's public key, for which clients seal.

    FILE holds the private keys; it is made if it is not there, and never leaves the server. A service that runs follows
    its changes.
    """
    need_packages(*_NEEDED)
    from noisette.shuffler.sealing import ServerKey

    if not file.exists():
        ServerKey.generate().write(file)
    found = ServerKey.read(file)
    for action in ["rotate"] * rotate + ["retire"] * retire:
        found.change(action)
    public = found.public.text
    click.echo(json.dumps({"public_key": public}) if as_json else public)


def _asking(command: Any) -> Any:
    """Add the options of a command that asks a shuffler which runs."""
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print the answer as JSON."),
        click.option("--authority", type=_FILE, help="PEM file: who signed the shuffler's certificate."),
        click.option(
            "--key",
            "operator_key",
            envvar="NOISETTE_OPERATOR_KEY",
            required=True,
            help="An operator's key; else $NOISETTE_OPERATOR_KEY.",
        ),
        click.option("--url", default="http://127.0.0.1:8100", show_default=True, help="Where the shuffler runs."),
    ):
        command = option(command)
    return command


def _ask(
    method: str, path: str, url: str, operator_key: str, authority: Path | None, body: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Return what a shuffler answers to an operator, or raise what it says is wrong."""
    need_packages(*_NEEDED)
    import ssl

    import httpx

    verify = ssl.create_default_context(cafile=str(authority)) if authority else True
    headers = {"Authorization": f"Bearer {operator_key}"}
    try:
        answer = httpx.request(method, url.rstrip("/") + path, headers=headers, json=body, verify=verify, timeout=30)
    except httpx.TransportError as error:
        raise OSError(
            f"No shuffler answers at {url}: {str(error).lower() or 'no connection'}. "
            "Start it, or give its address as --url"
        ) from error
    try:
        content: dict[str, Any] = answer.json()
    except ValueError as error:
        raise ValueError(
            f"{url} answered {answer.status_code}, and not as a shuffler does. Give the address of one as --url."
        ) from error
    if not answer.is_success and path != "/ready":
        raise ValueError(str(content.get("detail", content)))
    return content


@shuffler.command()
@_asking
def status(url: str, operator_key: str, authority: Path | None, as_json: bool) -> None:
    """Tell whether a shuffler stores and forwards, and list its batches."""
    content = _ask("GET", "/ready", url, operator_key, authority)
    content |= _ask("GET", "/batches", url, operator_key, authority)
    if as_json:
        click.echo(json.dumps(content))
        return
    click.echo(content.get("detail", content.get("status", "")))
    for one in content["batches"]:
        senders = f"{one['smallest_set']} of {one['minimum']} clients"
        click.echo(
            f"{one['name']}  {one['state']}  {one['context']} {one['round']}  {one['packets']} packets, {senders}"
        )
        if one["reason"]:
            click.echo(f"    {one['reason']}")


def _batch_command(action: str, text: str) -> None:
    @shuffler.command(action, help=text)
    @click.argument("batch")
    @_asking
    def change(batch: str, url: str, operator_key: str, authority: Path | None, as_json: bool) -> None:
        content = _ask("POST", f"/batches/{batch}/{action}", url, operator_key, authority)
        click.echo(json.dumps(content) if as_json else f"{content['done']}: {content['batch']}")


_batch_command("drop", "Erase a batch with all its packets.")
_batch_command("skip", "Set aside a batch that waits to be forwarded.")
_batch_command("retry", "Try again to forward a batch that was set aside.")


@shuffler.command()
@_asking
def clients(url: str, operator_key: str, authority: Path | None, as_json: bool) -> None:
    """List the clients that are enrolled."""
    content = _ask("GET", "/clients", url, operator_key, authority)
    click.echo(json.dumps(content) if as_json else "\n".join(content["clients"]))


@shuffler.command("enrol")
@click.argument("names", nargs=-1, required=True)
@click.option("--to", "folder", type=_FILE, default=Path("."), help="Folder for the clients' own files.")
@_asking
def enrol_live(
    names: tuple[str, ...], folder: Path, url: str, operator_key: str, authority: Path | None, as_json: bool
) -> None:
    """Enrol clients at a shuffler that runs, and write NAME.json for each: its secret, which nobody else keeps."""
    from noisette.shuffler.clients import write_secrets

    content = _ask("POST", "/clients", url, operator_key, authority, {"names": list(names)})
    made = [str(path) for path in write_secrets(content["secrets"], folder)]
    click.echo(json.dumps({"files": made}) if as_json else "\n".join(made))


@shuffler.command()
@click.argument("name")
@_asking
def revoke(name: str, url: str, operator_key: str, authority: Path | None, as_json: bool) -> None:
    """Refuse what a client sends from now on."""
    content = _ask("DELETE", f"/clients/{name}", url, operator_key, authority)
    click.echo(json.dumps(content) if as_json else f"revoked {name}; {content['clients']} clients are left")


@shuffler.command()
@_asking
def changes(url: str, operator_key: str, authority: Path | None, as_json: bool) -> None:
    """List which operator changed what, and when."""
    import time

    content = _ask("GET", "/changes", url, operator_key, authority)
    lines = [
        f"{time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime(one['time']))}  {one['operator']}  {one['change']}"
        for one in content["changes"]
    ]
    click.echo(json.dumps(content) if as_json else "\n".join(lines))


shuffler.add_command(run_shuffler)
shuffler.add_command(key)
