"""A shuffler, a receiver and their keys, listening on ports of this machine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.shuffler.helpers import KEY, LAYOUT, values_of

from noisette.shuffler import Clients, Receipt, Sender, Shuffler, create_app, create_receiver, new_secret, receiving
from noisette.shuffler._http import Operators
from noisette.shuffler.receiver import PATH
from noisette.shuffler.sender import Http

OPERATOR = {"Authorization": "Bearer key-of-olga-in-tests"}
collect_ignore = ["quickstart"]  # a Flower app, which Flower imports


@dataclass
class Running:
    """Where the two services are, and who may use them."""

    shuffler: str
    receiver: str
    receipt: Receipt
    secret_of: dict[str, str]
    own: dict[str, str] = field(default_factory=dict)

    def send(self, client: int, number: int = 1) -> None:
        """Send the values of a client in a round."""
        name = f"client-{client}"
        to = {"client": name, "secret": self.secret_of[name], "server": KEY.public.text}
        with Sender.over_http(self.shuffler, **to) as sender:
            sender.send(values_of(client), LAYOUT, context="run", number=number)


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    secret_of = {f"client-{number}": new_secret() for number in range(5)}
    own = {"shuffler": new_secret()}
    receipt, operators = Receipt(tmp_path / "receipt.db"), Operators({"olga": "key-of-olga-in-tests"})
    with receiving(create_receiver(receipt, Clients(own), operators=operators)) as receiver:
        shuffler = Shuffler(tmp_path / "shuffler.db", minimum=3)
        to = Http(receiver, client="shuffler", secret=own["shuffler"], path=PATH, attempts=1)
        with receiving(create_app(shuffler, Clients(secret_of), to, largest_body=100_000, operators=operators)) as url:
            yield Running(url, receiver, receipt, secret_of, own)
    receipt.close()
