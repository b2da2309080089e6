"""`noisette report`: every row is one user, however often the command is cut short and run again."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from click.testing import CliRunner, Result
from tests.collector.helpers import COMMUTE, KEYS, running

from noisette.cli import verbs
from noisette.collector import Store, create_app
from noisette.collector.web.access import Keys
from noisette.device import Client, gateway
from noisette.survey.campaigns import Campaign

USERS = 2500


@pytest.fixture(scope="module")
def people() -> pa.Table:
    rng = np.random.default_rng(3)
    return pa.table(
        {
            "id": [f"user {number}" for number in range(USERS)],
            "minutes": rng.gamma(4, 8, USERS).clip(0, 120),
            "by": rng.choice(["car", "bike", "bus", "foot"], USERS, p=[0.5, 0.2, 0.2, 0.1]),
        }
    )


@pytest.fixture
def table(tmp_path: Path, people: pa.Table) -> Path:
    path = tmp_path / "people.parquet"
    parquet.write_table(people, path)
    return path


@pytest.fixture
def command(service: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Run the command against the service."""
    monkeypatch.setenv("NOISETTE_KEY", KEYS["device"])
    monkeypatch.setattr(gateway, "_LARGEST_BATCH", 1000)

    def run(path: Path, *options: str, campaign: str = "commute", epsilon: str = "2") -> Result:
        address = f"{str(service.base_url).rstrip('/')}/campaigns/{campaign}"
        return CliRunner().invoke(verbs, ["report", str(path), "--campaign", address, "-e", epsilon, *options])

    return run


def _json(result: Result) -> Any:
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_every_row_counts_once(
    command: Callable[..., Result], table: Path, people: pa.Table, store: Store, campaign: Campaign
) -> None:
    found = _json(command(table, "--json"))
    counts = {key: found[key] for key in ("rows", "users", "new", "sent", "refused", "waiting")}
    assert counts == {"rows": USERS, "users": USERS, "new": USERS, "sent": USERS, "refused": 0, "waiting": 0}
    assert store.periods(campaign) == {"once": USERS}
    (estimate,) = store.aggregate(campaign, "once").estimates()
    truth = [np.mean(people["minutes"].to_numpy())]
    truth += [np.mean(np.asarray(people["by"].to_pylist()) == label) for label in ("car", "bike", "bus", "foot")]
    # five quantities, six standard errors: a false alarm of 1e-8
    assert np.all(np.abs(estimate.value - truth) < 6 * estimate.std_error)
    assert np.any(np.abs(estimate.value[::-1] - truth) > 6 * estimate.std_error[::-1]), "the twin"
    again = _json(command(table, "--json"))
    assert (again["new"], again["sent"]) == (0, USERS)
    assert store.periods(campaign) == {"once": USERS}
    shown = command(table)
    assert f"sent     {USERS:,}" in shown.stdout
    assert "keep that folder" in shown.stdout


def test_a_run_that_is_cut_short_goes_on(
    command: Callable[..., Result], table: Path, store: Store, campaign: Campaign, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process dies when the collector has a batch and the state does not know it yet."""
    real, calls = gateway.Gateway._settle, []

    def dies(self: gateway.Gateway, outcomes: Any, period: str) -> None:
        calls.append(len(outcomes))
        if len(calls) == 2:
            raise KeyboardInterrupt
        real(self, outcomes, period)

    with monkeypatch.context() as patch:
        patch.setattr(gateway.Gateway, "_settle", dies)
        assert command(table).exit_code != 0
    assert store.periods(campaign) == {"once": 2000}
    found = _json(command(table, "--json"))
    assert (found["new"], found["sent"], found["waiting"]) == (0, USERS, 0)
    assert store.periods(campaign) == {"once": USERS}


def test_a_csv_of_users_with_names(
    command: Callable[..., Result], tmp_path: Path, store: Store, campaign: Campaign
) -> None:
    path = tmp_path / "people.csv"
    path.write_text("id,minutes,by\nann,30,car\nbob,20,bike\nann,31,car\n", encoding="utf-8")
    result = command(path, "--user", "id")
    assert result.exit_code == 0, result.output
    assert "1 rows were of users who had answered in another row." in result.stdout
    path.write_text("id,minutes,by\ncat,5,foot\nbob,99,bus\n", encoding="utf-8")  # bob keeps his answer
    found = _json(command(path, "--user", "id", "--json"))
    assert (found["new"], found["users"], found["sent"]) == (1, 3, 3)
    assert store.periods(campaign) == {"once": 3}


def test_another_file_is_not_taken_for_the_same_users(command: Callable[..., Result], tmp_path: Path) -> None:
    path = tmp_path / "people.csv"
    path.write_text("minutes,by\n30,car\n20,bike\n", encoding="utf-8")
    assert command(path).exit_code == 0
    path.write_text("minutes,by\n30,car\n20,bus\n", encoding="utf-8")
    result = command(path)
    assert result.exit_code == 2
    assert "row numbers would name other users" in result.stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("minutes,by\n30,car\n500,bike\n", "row 2, column 'minutes': 500 is outside"),
        ("minutes,by\n30,plane\n", "row 1, column 'by': 'plane' is not among the labels 'car'"),
        ("minutes,by\n30,car\n,bike\n", "row 2"),
        ("minutes\n30\n", "lacks column 'by'"),
    ],
)
def test_wrong_values_cost_nothing(
    command: Callable[..., Result], tmp_path: Path, store: Store, campaign: Campaign, text: str, said: str
) -> None:
    path = tmp_path / "people.csv"
    path.write_text(text, encoding="utf-8")
    result = command(path)
    assert result.exit_code == 2, result.output
    assert said in result.stderr
    assert store.periods(campaign) == {}
    path.write_text("minutes,by\n500,car\n", encoding="utf-8")
    assert command(path, "--clip").exit_code == 0, "nothing was spent"


def test_what_the_budget_does_not_allow(command: Callable[..., Result], table: Path, store: Store) -> None:
    result = command(table, epsilon="1.9")
    assert result.exit_code == 1
    assert "has epsilon=1.9" in result.stderr


def test_refused_and_waiting_rows_are_told(
    command: Callable[..., Result], tmp_path: Path, store: Store, campaign: Campaign
) -> None:
    """Of two gateways with one secret the second is refused where it says otherwise, and only there."""
    path, first, second = tmp_path / "people.csv", tmp_path / "first", tmp_path / "second"
    path.write_text("id,minutes,by\nann,30,car\n", encoding="utf-8")
    assert command(path, "--user", "id", "--state", str(first)).exit_code == 0
    second.mkdir()
    with gateway.transaction(first / "reports.db") as database:
        secret = database.execute("SELECT secret FROM secrets").fetchone()[0]
    with gateway.transaction(second / "reports.db") as database:
        database.execute("CREATE TABLE secrets (secret BLOB NOT NULL)")
        database.execute("INSERT INTO secrets VALUES (?)", (secret,))
    path.write_text("id,minutes,by\nann,119,car\nbob,3,foot\n", encoding="utf-8")
    found = command(path, "--user", "id", "--state", str(second), "--json")
    told = json.loads(found.stdout)
    assert (told["sent"] + told["refused"], told["waiting"]) == (2, 0)
    if told["refused"]:  # ann's second report could by chance be her first one
        assert found.exit_code == 1
        assert "already answered" in next(iter(told["reasons"]))
    assert store.periods(campaign) == {"once": 2}


def test_bad_options(command: Callable[..., Result], table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = command(table, campaign="other")
    assert result.exit_code == 1
    assert "no such campaign" in result.stderr
    result = CliRunner().invoke(verbs, ["report", str(table), "--campaign", "commute", "-e", "1"])
    assert result.exit_code == 2
    assert "https://HOST/campaigns/ID" in result.stderr
    monkeypatch.delenv("NOISETTE_KEY")
    result = command(table)
    assert result.exit_code == 2
    assert "--key-file" in result.stderr
    monkeypatch.setenv("NOISETTE_KEY", "a-key-that-nobody-knows")
    result = command(table)
    assert result.exit_code == 1
    assert "does not know the key" in result.stderr
    assert "Error: The collector" in result.stderr  # no name of a class before it
    assert ".." not in result.stderr
    assert "NOISETTE_DEBUG" not in result.stderr


@pytest.mark.long
def test_groups_vectors_and_several_parts(tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOISETTE_KEY", KEYS["device"])
    asked = COMMUTE | {
        "attributes": [COMMUTE["attributes"][0], {"name": "v", "vector": 3, "range": [-1, 1]}],
        "mechanism": "auto",
        "report": None,
        "public_group": {"name": "town", "values": ["north", "south"]},
    }
    campaign = Campaign.from_dict(asked)
    app = create_app([campaign], store, Keys({"device": [KEYS["device"]]}))
    path = tmp_path / "people.csv"
    rows = "".join(
        f"{number % 120},0.5,-0.5,{number % 2},{'north' if number % 3 else 'south'}\n" for number in range(90)
    )
    path.write_text("minutes,v[0],v[1],v[2],town\n" + rows, encoding="utf-8")
    with running(app) as url:
        options = ["report", str(path), "--campaign", f"{url}/campaigns/commute", "-e", "2", "--json"]
        assert _json(CliRunner().invoke(verbs, options))["sent"] == 90
        assert store.periods(campaign) == {"once": 90}
        assert [sums.users for sums in store.sums(campaign)["once"].values()] == [60, 30]
        with Client(url, state=tmp_path / "device", api_key=KEYS["device"], epsilon=2.0) as client:
            mine = {"minutes": 3, "v": [0, 0, 1]}
            for group in (None, "west"):
                with pytest.raises(ValueError, match="town, to be one of north, south"):
                    client.answer("commute", mine, group=group)
            assert client.answer("commute", mine, group="south")
            assert client.send().sent == 1
        assert [sums.users for sums in store.sums(campaign)["once"].values()] == [60, 31]
