"""Who may send: enrolled names with a secret each, and the signature that proves a request comes from one.

Two keys follow from a client's secret. Its *signing key* signs a request with HMAC-SHA256 over path, sender, number,
the least number of senders it asks for, and content: a request that is changed on its way is refused. Its *mark* goes
with every request, and the shuffler keeps only the mark's SHA-256. So the shuffler knows a client when it comes, can
note "this mark has sent that block" under a name that depends on the mark, and nobody who takes its files can tell
whose that name is: neither the mark nor the secret is in them.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import os
import re
import secrets
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from noisette._files import ChangingFile, whole_file

CLIENT, POST, SIGNATURE = "Noisette-Client", "Noisette-Post", "Noisette-Signature"
MARK, MINIMUM = "Noisette-Mark", "Noisette-Minimum"
HEADERS = (CLIENT, POST, SIGNATURE, MARK, MINIMUM)

_SECRET = re.compile(r"[0-9a-f]{64}")
_ENTRY = re.compile(r"[0-9a-f]{64}:[0-9a-f]{64}")
_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
_POST = re.compile(r"[A-Za-z0-9._-]{1,80}")
_NUMBER = re.compile(r"0|[1-9][0-9]{0,8}")
_NOBODY = "0" * 64 + ":" + "0" * 64  # unknown names are compared with it, so that they take as long as known ones

log = logging.getLogger("noisette.shuffler")


class Forged(Exception):
    """A request without a valid signature of an enrolled client."""


@dataclass(frozen=True)
class Caller:
    """Who signed a request: its name, its mark, the number of the post, and the least number of senders it asks for."""

    name: str
    mark: str
    post: str
    minimum: int


class Clients:
    """The enrolled clients: of each a name, its signing key, and the SHA-256 of its mark.

    ``entries`` has for each name its secret, or what `entry_of` makes of it, which is all that is kept. A list that was
    read from a file is read again when the file changes, so that clients come and go while a service runs.

    >>> clients = Clients({"phone-1": new_secret()})
    >>> clients.verify("/posts", sign("00" * 32, "/posts", "phone-1", "post-1", b"body"), b"body")
    Traceback (most recent call last):
    ...
    noisette.shuffler.clients.Forged: ...
    """

    def __init__(self, entries: Mapping[str, str]) -> None:
        self._entries = _checked(entries)
        self._file: ChangingFile | None = None
        self._turn = threading.Lock()

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def names(self) -> list[str]:
        """The names of the enrolled clients, in order."""
        self._look()
        return sorted(self._entries)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Clients:
        """Read a JSON file of names and entries, and follow its changes."""
        file = ChangingFile(path)
        made = cls(_read(path))
        made._file = file
        return made

    def _look(self) -> None:
        """Read the file again if it has changed; a file that cannot be read changes nothing."""
        if self._file is None:
            return
        with self._turn:
            try:
                if self._file.changed():
                    self._entries = _checked(_read(self._file.path))
            except (OSError, ValueError) as error:
                log.error("clients not read", extra={"fields": {"detail": str(error)}})

    def enrol(self, names: Sequence[str]) -> dict[str, str]:
        """Add clients, here and in the file, and return their new secrets, which are kept nowhere."""
        made = {name: new_secret() for name in names}
        with self._turn:
            if again := sorted(set(made) & set(self._entries)):
                raise ValueError(f"{again[0]!r} is enrolled already. Revoke it first to give it a new secret.")
            self._replace(self._entries | _checked(made))
        return made

    def revoke(self, name: str) -> None:
        """Take a client off the list, here and in the file; what it has sent stays, as nobody knows which it is."""
        with self._turn:
            if name not in self._entries:
                raise ValueError(f"Expected an enrolled client, got {name!r}.")
            self._replace(_checked({known: entry for known, entry in self._entries.items() if known != name}))

    def _replace(self, entries: dict[str, str]) -> None:
        if self._file is not None:
            _write(self._file.path, entries)
        self._entries = entries

    def admit(self, headers: Mapping[str, str]) -> Caller:
        """Return the caller that a request names if its mark is right, before its body is read; or raise `Forged`."""
        self._look()
        name, mark = headers.get(CLIENT, ""), headers.get(MARK, "")
        found = Caller(name, mark, headers.get(POST, ""), _minimum(headers.get(MINIMUM, "")))
        _, expected = self._entries.get(name, _NOBODY).split(":")
        right = hmac.compare_digest(expected, _digest(mark))
        if not right or name not in self._entries or not _POST.fullmatch(found.post):
            raise Forged("Expected a request that an enrolled client has signed.")
        return found

    def verify(self, path: str, headers: Mapping[str, str], body: bytes) -> Caller:
        """Return who signed a request, or raise `Forged`."""
        found = self.admit(headers)
        key, _ = self._entries.get(found.name, _NOBODY).split(":")
        expected = _signature(key, path, found, body)
        if not hmac.compare_digest(expected.encode(), headers.get(SIGNATURE, "").encode("utf-8", "replace")):
            raise Forged("Expected a request that an enrolled client has signed.")
        return found


def _minimum(text: str) -> int:
    if not _NUMBER.fullmatch(text):
        raise Forged(f"Expected a header {MINIMUM} with a whole number below a thousand million.")
    return int(text)


def _checked(entries: Mapping[str, str]) -> dict[str, str]:
    """Return names and entries in which no secret is left, or say what is wrong."""
    if not isinstance(entries, Mapping) or not entries:
        raise ValueError("Expected at least one client, as an object of names and secrets.")
    for name, entry in entries.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ValueError(f"Expected a client's name of 1 to 64 letters, digits, dots or dashes, got {name!r}.")
        if not isinstance(entry, str) or not (_SECRET.fullmatch(entry) or _ENTRY.fullmatch(entry)):
            raise ValueError(
                f"Expected the secret of {name!r} to be 64 hexadecimal digits. Make one with `noisette federate enrol`."
            )
    return {name: entry if ":" in entry else entry_of(entry) for name, entry in entries.items()}


def _read(path: str | os.PathLike[str]) -> dict[str, str]:
    try:
        found: dict[str, str] = json.loads(Path(path).read_text(encoding="utf-8"))
        _checked(found)
    except json.JSONDecodeError as error:  # its message would show a part of the file
        raise ValueError(f"{path}: not a JSON file. `noisette federate enrol` writes one.") from error
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    return found


def read_credentials(path: str | os.PathLike[str]) -> tuple[str, str]:
    """Read the name and the secret of one client from a JSON file that holds no other."""
    found = _read(path)
    if len(found) != 1:
        raise ValueError(f"{path}: expected one name and its secret, got {len(found)}.")
    name, secret = next(iter(found.items()))
    return check_secret(name, secret)


def check_secret(name: str, secret: str) -> tuple[str, str]:
    """Return a client's name and secret, or say what is wrong with them."""
    _checked({name: secret})
    if not _SECRET.fullmatch(secret):
        raise ValueError(f"Expected the secret of {name!r}, which the client has; this is what the shuffler keeps.")
    return name, secret


def enrol(path: str | os.PathLike[str], names: Sequence[str], *, folder: str | os.PathLike[str]) -> list[Path]:
    """Add clients to a file, and write for each its credentials ``folder/NAME.json``, which alone hold its secret.

    Files are readable by their owner alone. A name that is enrolled already is an error: its secret would change.
    Secrets that an older version left in the file are replaced by what is needed of them.
    """
    known = _checked(_read(path)) if Path(path).exists() else {}
    if again := sorted(set(names) & set(known)):
        raise ValueError(f"{path}: {again[0]!r} is enrolled already. Remove its line to give it a new secret.")
    made = {name: new_secret() for name in names}
    entries = known | (_checked(made) if made else {})
    own = write_secrets(made, folder)
    _write(Path(path), entries)
    return own


def write_secrets(secret_of: Mapping[str, str], folder: str | os.PathLike[str]) -> list[Path]:
    """Write for each client a file ``folder/NAME.json`` with its secret, which its owner alone can read."""
    Path(folder).mkdir(mode=0o700, parents=True, exist_ok=True)
    own = [Path(folder) / f"{name}.json" for name in secret_of]
    for place, (name, secret) in zip(own, secret_of.items(), strict=True):
        _write(place, {name: secret})
    return own


def _write(path: Path, entries: dict[str, str]) -> None:
    """Write names, and the entry of each, to a file that its owner alone can read."""
    with whole_file(path, mode=0o600) as file:
        file.write(json.dumps(entries, indent=1).encode())


def new_secret() -> str:
    """Return a secret, from the operating system's entropy."""
    return secrets.token_hex(32)


def keys_of(secret: str) -> tuple[str, str]:
    """Return the signing key and the mark that follow from a client's secret."""
    raw = bytes.fromhex(secret)
    key, mark = (hmac.new(raw, f"noisette-shuffler {use}".encode(), hashlib.sha256) for use in ("signing", "mark"))
    return key.hexdigest(), mark.hexdigest()


def entry_of(secret: str) -> str:
    """Return what the shuffler keeps of a client: its signing key, and the SHA-256 of its mark."""
    key, mark = keys_of(secret)
    return f"{key}:{_digest(mark)}"


def sign(secret: str, path: str, client: str, post: str, body: bytes, *, minimum: int = 0) -> dict[str, str]:
    """Return the headers of a signed request that is to be mixed with those of at least ``minimum`` clients."""
    key, mark = keys_of(secret)
    signature = _signature(key, path, Caller(client, mark, post, minimum), body)
    return {CLIENT: client, POST: post, MARK: mark, MINIMUM: str(minimum), SIGNATURE: signature}


def _signature(key: str, path: str, caller: Caller, body: bytes) -> str:
    content = hashlib.sha256(body).hexdigest()
    message = "\n".join(["noisette-shuffler-2", path, caller.name, caller.post, str(caller.minimum), content])
    return hmac.new(bytes.fromhex(key), message.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()


def _digest(mark: str) -> str:
    return hashlib.sha256(mark.encode("utf-8", "surrogatepass")).hexdigest()
