"""Tokens by which one user is counted once in a period.

A device keeps a secret of its own and sends HMAC-SHA256(secret, campaign and period). The same device in the same
period has the same token, so a second report is seen; across periods and campaigns tokens share nothing that anyone
without the secret could compute, so they cannot be linked through the token. What this does not do: a device that makes
up several secrets is several users. Only whoever hands out the API keys can prevent that.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets

SECRET_BYTES = 32


def new_secret() -> bytes:
    """Return a device's secret, from the operating system's entropy."""
    return secrets.token_bytes(SECRET_BYTES)


def token(secret: bytes, campaign: str, period: str) -> str:
    """Return the device's token for a campaign and a period, in hexadecimal digits.

    >>> token(bytes(32), "commute", "2026-W46")[:8] == token(bytes(32), "commute", "2026-W47")[:8]
    False
    """
    return hmac.new(secret, f"{campaign}\n{period}".encode(), hashlib.sha256).hexdigest()
