"""`noisette federate shuffler`, and the keys that it needs."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import click

_PACKAGES = ("cryptography", "fastapi", "httpx", "prometheus_client", "uvicorn")
_FILE = click.Path(path_type=Path)


@click.command()
@click.option("--clients", "client_file", type=_FILE, required=True, help="JSON: names and secrets, as enrol makes it.")
@click.option("--server", required=True, help="URL of the server that receives the waves.")
@click.option("--credentials", type=_FILE, required=True, help="JSON: the shuffler's name and secret at the server.")
@click.option("--minimum", type=click.IntRange(min=2), required=True, help="Clients that a wave must have.")
@click.option("--patience", type=click.FloatRange(min=0), default=0.0, show_default=True, help="Seconds for more.")
@click.option("--store", type=_FILE, default=Path("shuffler.db"), show_default=True, help="File of accepted packets.")
@click.option("--max-store", type=click.IntRange(min=1), default=16384, show_default=True, help="Its limit in MiB.")
@click.option("--max-body", type=click.IntRange(min=1), help="Largest post in bytes; 4 MiB by default.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=8100, show_default=True, help="0 takes a free one.")
@click.option("--allow-origin", "origins", multiple=True, metavar="URL", help="Site whose pages may send.")
@click.option("--certificate", type=_FILE, help="PEM file: serve HTTPS with it.")
@click.option("--key", "private_key", type=_FILE, help="PEM file: the certificate's private key.")
@click.option("--authority", type=_FILE, help="PEM file: who signed the server's certificate.")
@click.option("--json", "as_json", is_flag=True, help="Print the address as JSON.")
def shuffler(
    client_file: Path,
    server: str,
    credentials: Path,
    minimum: int,
    patience: float,
    store: Path,
    max_store: int,
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
    _need_packages()
    from noisette._service import Tls, address, listen, run
    from noisette._terminal import console, literal, to_json
    from noisette.shuffler._http import LARGEST_BODY
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
    opened = Shuffler(store, minimum=minimum, patience=patience, largest=max_store * 2**20)
    app = create_app(opened, clients, target, largest_body=max_body or LARGEST_BODY, origins=origins)
    bound = listen(host, port)
    url = address(host, bound, tls)
    if as_json:
        click.echo(to_json({"url": url, "clients": len(clients), "minimum": minimum}))
    else:
        out = console()
        out.print(f"{len(clients)} clients enrolled; a wave has at least {minimum} of them")
        out.print(literal(f"Listening on {url}"), soft_wrap=True)
    run(app, bound, log, tls=tls)


@click.command()
@click.argument("file", type=_FILE)
@click.argument("names", nargs=-1, required=True)
@click.option("--to", "folder", type=_FILE, help="Folder for the clients' own files; that of FILE by default.")
@click.option("--json", "as_json", is_flag=True, help="Print the files as JSON.")
def enrol(file: Path, names: tuple[str, ...], folder: Path | None, as_json: bool) -> None:
    """Add clients to FILE, with a new secret each.

    FILE is for the shuffler. Each client gets NAME.json, which holds its own secret alone. The same command makes the
    secret between the shuffler and the server.
    """
    _need_packages()
    from noisette.shuffler.clients import enrol as add

    made = [str(path) for path in add(file, names, folder=folder or file.parent)]
    click.echo(json.dumps({"files": made}) if as_json else "\n".join(made))


@click.command()
@click.argument("file", type=_FILE)
@click.option("--json", "as_json", is_flag=True, help="Print the key as JSON.")
def key(file: Path, as_json: bool) -> None:
    """Show the server's public key, for which clients seal.

    FILE holds the private key; it is made if it is not there, and never leaves the server.
    """
    _need_packages()
    from noisette.shuffler.sealing import ServerKey

    if not file.exists():
        ServerKey.generate().write(file)
    public = ServerKey.read(file).public.text
    click.echo(json.dumps({"public_key": public}) if as_json else public)


def _need_packages() -> None:
    lacking = [name for name in _PACKAGES if find_spec(name) is None]
    if lacking:
        raise ValueError(f"The shuffler needs {', '.join(lacking)}: pip install 'noisette[shuffler]'.")
