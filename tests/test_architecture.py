"""The walks of docs/architecture.md: every function is there, the first three are what really runs."""

from __future__ import annotations

import importlib
import inspect
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np
import pytest

import noisette as nz

PAGE = Path(__file__).parents[1] / "docs" / "architecture.md"
SOURCE = Path(nz.__file__).parent
MOST_FILES = 20  # that a value passes from the device to the dashboard, the page itself included


def walks() -> dict[str, list[str]]:
    """Return the functions of each walk."""
    _, *chapters = re.split(r"^## ", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {text.partition("\n")[0]: re.findall(r"^\d+\. `([\w.]+)`", text, flags=re.MULTILINE) for text in chapters}


def names() -> list[str]:
    """Return every name of ours on the page, in the walks and beside them."""
    return sorted(set(re.findall(r"`(noisette\.[\w.]+)`", PAGE.read_text(encoding="utf-8"))))


def found(name: str) -> Any:
    """Return what a dotted name stands for."""
    parts = name.split(".")
    for split in range(len(parts) - 1, 0, -1):
        try:
            thing: Any = importlib.import_module(".".join(parts[:split]))
        except ModuleNotFoundError as error:
            if not name.startswith(str(error.name)):
                raise  # an extra that is not installed
            continue
        for part in parts[split:]:
            thing = getattr(thing, part)
        return thing
    raise AssertionError(name)


@pytest.mark.slow
@pytest.mark.needs("fastapi", "httpx", "sqlalchemy", "torch", "flwr", "cryptography")
def test_every_function_of_the_walks_exists() -> None:
    assert [len(walk) > 10 for walk in walks().values() if walk] == [True] * 4
    assert len(names()) > 60
    for name in names():
        assert callable(found(name)), name


@contextmanager
def traced() -> Iterator[set[CodeType]]:
    """Note the code that runs, in this thread and in those that begin."""
    ran: set[CodeType] = set()

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            ran.add(frame.f_code)

    before = sys.getprofile()
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield ran
    finally:
        sys.setprofile(before)
        threading.setprofile(None)


def code_of(name: str) -> CodeType:
    """Return the code of a function, or of the checks of a class."""
    thing = found(name)
    if inspect.isclass(thing):
        thing = thing.__post_init__
    return inspect.unwrap(thing).__code__


def check(title: str, run: Callable[[], None]) -> set[CodeType]:
    """Run, and check that every function of a walk was called."""
    codes = {name: code_of(name) for name in walks()[title]}
    with traced() as ran:
        run()
    assert [name for name, code in codes.items() if code not in ran] == []
    return ran


@pytest.mark.slow
@pytest.mark.needs("fastapi", "httpx", "sqlalchemy")
def test_a_value_to_the_dashboard(tmp_path: Path) -> None:
    import httpx
    from tests.collector.helpers import KEYS, auth, known_keys, running

    from noisette.collector import Store, create_app
    from noisette.device import Client
    from noisette.survey.campaigns import Campaign

    asked = {"id": "one", "epsilon": 2.0, "users": 100, "attributes": [{"name": "minutes", "range": [0, 120]}]}
    campaign = Campaign.from_dict(asked | {"mechanism": "piecewise"})

    def run() -> None:
        store = Store(f"sqlite:///{tmp_path / 'reports.db'}")
        with running(create_app([campaign], store, known_keys())) as url:
            with Client(url, state=tmp_path / "device", api_key=KEYS["device"], epsilon=2.0) as device:
                assert device.answer("one", {"minutes": 35})
                assert device.send().sent == 1
            shown = httpx.get(f"{url}/dashboard/campaigns/one", headers=auth("analyst"))
        assert shown.json()["estimates"]["users"] == 1

    check("A value to the dashboard", run)
    files = {Path(code_of(name).co_filename).relative_to(SOURCE) for name in walks()["A value to the dashboard"]}
    passed = len(files) + len({"dashboard.js"})
    assert passed <= MOST_FILES, sorted(map(str, files))
    assert f"from device to dashboard | {passed} |" in PAGE.read_text(encoding="utf-8")


def test_a_tensor() -> None:
    def run() -> None:
        mechanism = nz.TensorGaussian(nz.TensorDomain((4, 5)), 1.0, covariances=(np.linspace(1, 2, 4), None))
        estimate = mechanism.aggregate(mechanism.privatize(np.zeros((30, 4, 5)), rng=1)).estimate()
        assert nz.enhance(estimate).value.size == 20

    check("A tensor", run)


@pytest.mark.slow
@pytest.mark.needs("torch")
def test_a_training_batch() -> None:
    torch = pytest.importorskip("torch")
    from noisette import sgd

    def run() -> None:
        model = torch.nn.Linear(3, 2)
        data = torch.utils.data.TensorDataset(torch.ones(64, 3), torch.zeros(64, dtype=torch.int64))
        loader = torch.utils.data.DataLoader(data, batch_size=32)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        private = sgd.make_private(model, optimizer, loader, target=(3.0, 1e-5), epochs=1, rng=1)
        for inputs, labels in private.loader:
            private.optimizer.zero_grad()
            torch.nn.functional.cross_entropy(private.model(inputs), labels).backward()
            private.optimizer.step()

    check("A training batch", run)


def test_a_walk_that_is_not_walked_is_seen() -> None:
    """The twin: where nothing runs, every function is missed."""
    with pytest.raises(AssertionError, match="noisette"):
        check("A tensor", lambda: None)
