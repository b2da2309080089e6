"""Tokens by which one user is counted once in a period.

A device keeps a secret of its own and sends HMAC-SHA256(secret, campaign and period). The same device in the same
period has the same token, so a second report is seen; across periods and campaigns tokens share nothing that anyone
without the secret could compute, so they cannot be linked through the token. What this does not do: a device that makes
up several secrets is several users. Only whoever hands out the API keys can prevent that. Where enrolment codes admit
users, the collector signs tokens without seeing them; a `Wallet` keeps such a token on the disk from before it is shown
until it is sent.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from dataclasses import dataclass
from pathlib import Path

from noisette._sqlite import transaction
from noisette.survey.batches import TOKEN_BYTES

SECRET_BYTES = 32
WALLET = """
CREATE TABLE IF NOT EXISTS wallet (
    owner BLOB NOT NULL,
    campaign TEXT NOT NULL,
    period TEXT NOT NULL,
    token BLOB NOT NULL,
    modulus TEXT NOT NULL,
    blinded BLOB NOT NULL,
    inverse TEXT NOT NULL,
    signature BLOB,
    PRIMARY KEY (owner, campaign, period)
) WITHOUT ROWID
"""
_PLACE = "WHERE owner = ? AND campaign = ? AND period = ?"


def new_secret() -> bytes:
    """Return a device's secret, from the operating system's entropy."""
    return secrets.token_bytes(SECRET_BYTES)


def token(secret: bytes, campaign: str, period: str) -> str:
    """Return the device's token for a campaign and a period, in hexadecimal digits.

    >>> token(bytes(32), "commute", "2026-W46")[:8] == token(bytes(32), "commute", "2026-W47")[:8]
    False
    """
    return hmac.new(secret, f"{campaign}\n{period}".encode(), hashlib.sha256).hexdigest()


@dataclass(frozen=True)
class Wallet:
    """One user's tokens in the database at ``path``, where a gateway keeps those of many; ``owner`` names the user."""

    path: Path
    owner: bytes = b""

    def signed(self, campaign: str, period: str) -> tuple[bytes, bytes] | None:
        """Return the token of a period and its signature, once there is one."""
        query = f"SELECT token, signature FROM wallet {_PLACE} AND signature IS NOT NULL"
        with transaction(self.path) as database:
            found: tuple[bytes, bytes] | None = database.execute(query, (self.owner, campaign, period)).fetchone()
        return found

    def blind(self, campaign: str, period: str, modulus: str) -> str:
        """Return this period's token as the collector may see it: made once, however often it is asked to sign."""
        from noisette.device.blind import VerifyingKey

        own = secrets.token_bytes(TOKEN_BYTES)
        blinded, inverse = VerifyingKey(int(modulus, 16)).blind(own)
        place = (self.owner, campaign, period)
        row = (*place, own, modulus, blinded, str(inverse))
        with transaction(self.path) as database:
            database.execute("INSERT OR IGNORE INTO wallet VALUES (?, ?, ?, ?, ?, ?, ?, NULL)", row)
            shown, known = database.execute(f"SELECT blinded, modulus FROM wallet {_PLACE}", place).fetchone()
        if known != modulus:
            raise ValueError("The collector shows another key than before. Do not answer: it may mark users.")
        return base64.b64encode(shown).decode("ascii")

    def unblind(self, campaign: str, period: str, signed: str) -> None:
        """Take the blinding off a signature and keep it, or raise if it is not the collector's."""
        from noisette.device.blind import VerifyingKey

        place = (self.owner, campaign, period)
        with transaction(self.path) as database:
            query = f"SELECT token, modulus, inverse FROM wallet {_PLACE}"
            own, modulus, inverse = database.execute(query, place).fetchone()
            signature = VerifyingKey(int(modulus, 16)).finish(own, base64.b64decode(signed), int(inverse))
            database.execute(f"UPDATE wallet SET signature = ? {_PLACE}", (signature, *place))


def written(token: bytes, signature: bytes) -> dict[str, str]:
    """Return a token as it stands in a report, with its signature if it has one."""
    signed = {"signature": base64.b64encode(signature).decode("ascii")} if signature else {}
    return {"token": token.hex()} | signed
