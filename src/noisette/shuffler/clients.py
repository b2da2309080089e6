"""Who may send: enrolled names with a secret each, and the signature that proves a request comes from one.

A request is signed with HMAC-SHA256 over its path, sender, number and content. The secret never travels; a request that
is changed on its way is refused, and one that is sent again is known by its number.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path

from noisette._files import whole_file

CLIENT, POST, SIGNATURE = "Noisette-Client", "Noisette-Post", "Noisette-Signature"

_SECRET = re.compile(r"[0-9a-f]{64}")
_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
_POST = re.compile(r"[A-Za-z0-9._-]{1,80}")
_NOBODY = "0" * 64  # compared with for unknown names, so that they take as long


class Forged(Exception):
    """A request without a valid signature of an enrolled client."""


class Clients:
    """The enrolled clients and their secrets.

    >>> clients = Clients({"phone-1": new_secret()})
    >>> clients.verify("/posts", sign("00" * 32, "/posts", "phone-1", "post-1", b"body"), b"body")
    Traceback (most recent call last):
    ...
    noisette.shuffler.clients.Forged: ...
    """

    def __init__(self, secret_of: Mapping[str, str]) -> None:
        if not isinstance(secret_of, Mapping) or not secret_of:
            raise ValueError("Expected at least one client, as an object of names and secrets.")
        for name, secret in secret_of.items():
            if not isinstance(name, str) or not _NAME.fullmatch(name):
                raise ValueError(f"Expected a client's name of 1 to 64 letters, digits, dots or dashes, got {name!r}.")
            if not isinstance(secret, str) or not _SECRET.fullmatch(secret):
                raise ValueError(
                    f"Expected the secret of {name!r} to be 64 hexadecimal digits. "
                    "Make one with `noisette federate enrol`."
                )
        self.secret_of = dict(secret_of)

    def __len__(self) -> int:
        return len(self.secret_of)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Clients:
        """Read a JSON file of names and secrets."""
        try:
            return cls(json.loads(Path(path).read_text(encoding="utf-8")))
        except json.JSONDecodeError as error:  # its message would show a part of the file
            raise ValueError(f"{path}: not a JSON file.") from error
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error

    def verify(self, path: str, headers: Mapping[str, str], body: bytes) -> tuple[str, str]:
        """Return the client and the number of a request that it signed, or raise `Forged`."""
        client, post = headers.get(CLIENT, ""), headers.get(POST, "")
        known = self.secret_of.get(client, _NOBODY)
        expected, given = sign(known, path, client, post, body)[SIGNATURE], headers.get(SIGNATURE, "")
        right = hmac.compare_digest(expected.encode(), given.encode("utf-8", "replace"))
        if not right or client not in self.secret_of or not _POST.fullmatch(post):
            raise Forged("Expected a request that an enrolled client has signed.")
        return client, post


def read_credentials(path: str | os.PathLike[str]) -> tuple[str, str]:
    """Read the name and the secret of one client from a JSON file that holds no other."""
    found = Clients.read(path)
    if len(found) != 1:
        raise ValueError(f"{path}: expected one name and its secret, got {len(found)}.")
    return next(iter(found.secret_of.items()))


def enrol(path: str | os.PathLike[str], names: Sequence[str], *, folder: str | os.PathLike[str]) -> list[Path]:
    """Add clients with new secrets to a file, and write for each its credentials ``folder/NAME.json``.

    Files are readable by their owner alone. A name that is enrolled already is an error: its secret would change.
    """
    known = Clients.read(path).secret_of if Path(path).exists() else {}
    if again := sorted(set(names) & set(known)):
        raise ValueError(f"{path}: {again[0]!r} is enrolled already. Remove its line to give it a new secret.")
    made = Clients({name: new_secret() for name in names}).secret_of
    Path(folder).mkdir(mode=0o700, parents=True, exist_ok=True)
    own = [Path(folder) / f"{name}.json" for name in made]
    for place, (name, secret) in zip(own, made.items(), strict=True):
        _write(place, {name: secret})
    _write(Path(path), known | made)
    return own


def _write(path: Path, secret_of: dict[str, str]) -> None:
    """Write secrets for their owner's eyes alone."""
    with whole_file(path, mode=0o600) as file:
        file.write(json.dumps(secret_of, indent=1).encode())


def new_secret() -> str:
    """Return a secret, from the operating system's entropy."""
    return secrets.token_hex(32)


def sign(secret: str, path: str, client: str, post: str, body: bytes) -> dict[str, str]:
    """Return the headers of a signed request."""
    told = "\n".join(["noisette-shuffler-1", path, client, post, hashlib.sha256(body).hexdigest()])
    mark = hmac.new(bytes.fromhex(secret), told.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()
    return {CLIENT: client, POST: post, SIGNATURE: mark}
