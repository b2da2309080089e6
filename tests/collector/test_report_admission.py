"""`noisette report` where users are admitted by code or mixed by a shuffler: each row is as one device of her own."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.collector.helpers import COMMUTE, KEYS, SECRET, behind_a_shuffler, known_keys, running, until

from noisette.cli import verbs
from noisette.collector import Store, create_app
from noisette.device import gateway
from noisette.device.blind import new_code
from noisette.survey.campaigns import Campaign

USERS = [f"device-{number}" for number in range(5)]
GROUPED = COMMUTE | {"tokens": "blind", "public_group": {"name": "town", "values": ["north", "south"]}}


@pytest.fixture
def people(tmp_path: Path) -> Path:
    path = tmp_path / "people.csv"
    rows = "".join(f"{user},{10 * number},bike,south\n" for number, user in enumerate(USERS))
    path.write_text("id,minutes,by,town\n" + rows, encoding="utf-8")
    return path


@pytest.fixture
def written(tmp_path: Path) -> Callable[[str, Any], str]:
    """Write a JSON file and return its path."""

    def write(name: str, content: Any) -> str:
        path = tmp_path / name
        path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
        return str(path)

    return write


@pytest.fixture
def report(people: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Run the command against a collector."""
    monkeypatch.setenv("NOISETTE_KEY", KEYS["device"])

    def run(url: str, *options: str) -> Result:
        address = ["--campaign", f"{url}/campaigns/commute", "-e", "2", "--user", "id", "--json"]
        return CliRunner().invoke(verbs, ["report", str(people), *address, *options])

    return run


def _codes(first: int = 0) -> dict[str, str]:
    return {user: new_code(SECRET, first + number) for number, user in enumerate(USERS)}


def test_codes_admit_each_user_once(
    report: Callable[..., Result], written: Callable[[str, Any], str], store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    campaign = Campaign.from_dict(GROUPED)
    with running(create_app([campaign], store, known_keys())) as url:
        for told, said in (
            ([], "Expected the enrolment code of user 'device-0'"),
            (["--codes", written("few.json", dict(list(_codes().items())[:4]))], "code of user 'device-4'"),
            (["--codes", written("list.json", ["x"])], "expected an object with a text for each user"),
            (["--codes", written("none.json", "{")], "not a JSON file"),
        ):
            result = report(url, *told)
            assert (result.exit_code, said in result.stderr) == (2, True), result.stderr
        codes = written("codes.json", _codes() | {"device-2": "2." + "0" * 32})
        sends, real = [], gateway.Gateway._send_batch

        def dies(self: gateway.Gateway, *batch: Any) -> bool:
            sends.append(real(self, *batch))
            raise KeyboardInterrupt  # the collector has the batch, and the state does not know it

        with monkeypatch.context() as patch:
            patch.setattr(gateway.Gateway, "_settle", lambda *_: None)
            patch.setattr(gateway.Gateway, "_send_batch", dies)
            assert report(url, "--codes", codes).exit_code != 0
        assert store.periods(campaign) == {"once": 4}
        result = report(url, "--codes", codes)
        told = json.loads(result.stdout)
        assert (result.exit_code, told["sent"], told["refused"], told["waiting"], told["new"]) == (1, 4, 1, 0, 0)
        assert told["reasons"] == {
            "This enrolment code is none that was given out here. Ask whoever invited you for yours.": 1
        }
        assert store.periods(campaign) == {"once": 4}
        assert {code: sums.users for code, sums in store.sums(campaign)["once"].items()} == {1: 4}
        again = report(url, "--codes", codes, "--state", written("x", "") + ".other")  # other tokens for the same codes
        assert json.loads(again.stdout)["refused"] == 5
        assert store.periods(campaign) == {"once": 4}


@pytest.mark.long
@pytest.mark.parametrize("asked", [COMMUTE, GROUPED], ids=["open", "blind"])
def test_sealed_for_the_shuffler(
    report: Callable[..., Result], written: Callable[[str, Any], str], tmp_path: Path, asked: dict[str, Any]
) -> None:
    campaign = Campaign.from_dict(asked)
    with behind_a_shuffler(tmp_path, campaign, len(USERS)) as both:
        secrets = written("secrets.json", both.secret_of)
        codes = ["--codes", written("codes.json", _codes())]
        for told, said in (
            (codes, "takes reports from its shuffler alone"),
            (["--shuffler", both.shuffler], "--shuffler and --secrets together"),
            (
                [*codes, "--shuffler", both.shuffler, "--secrets", written("few.json", {"device-0": "0" * 64})],
                "Expected the secret at the shuffler of user 'device-1'",
            ),
            (
                [*codes, "--shuffler", both.shuffler, "--secrets", written("wrong.json", {"device-0": "x"})],
                "64 hexadecimal digits",
            ),
        ):
            result = report(both.collector, *told)
            assert (result.exit_code, said in result.stderr) == (2, True), result.stderr
        through = ["--shuffler", both.shuffler, "--secrets", secrets]
        for new in (5, 0):
            result = report(both.collector, *codes, *through)
            assert result.exit_code == 0, result.output
            told = json.loads(result.stdout)
            assert (told["sent"], told["new"]) == (5, new)
        until(lambda: both.store.periods(campaign) == {"once": 5})
        others = ["--codes", written("others.json", _codes(100)), "--state", str(tmp_path / "other")]
        away = report(both.collector, *others, "--shuffler", both.collector, "--secrets", secrets)
        assert json.loads(away.stdout)["waiting"] == 5  # the collector is no shuffler
        assert both.store.periods(campaign) == {"once": 5}
