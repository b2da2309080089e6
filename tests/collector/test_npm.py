"""clients/js, the device for web pages: its tests in node, and the package that `npm pack` makes of it."""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI, Response
from playwright.sync_api import Browser
from tests.collector.helpers import COMMUTE, KEYS, SECRET, known_keys, running

from noisette.collector import Store, create_app
from noisette.collector.web.pages import CLIENT
from noisette.device.blind import new_code
from noisette.survey.campaigns import Campaign

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "clients" / "js"
NODE, NPM = shutil.which("node"), shutil.which("npm")
DEVICES: dict[str, Any] = {"id": "devices", "epsilon": 2.0, "users": 100, "mechanism": "privset"} | {
    "attributes": [{"name": "devices", "options": ["phone", "tablet", "watch"], "most": 2}]
}
DRINKS: dict[str, Any] = {"id": "drinks", "epsilon": 2.0, "users": 100, "tokens": "drawn"} | {
    "attributes": [{"name": "drink", "text": 6}]
}
DAILY = DRINKS | {"id": "daily", "period": "day", "answers": "tracked", "periods": 2}

pytestmark = [pytest.mark.slow, pytest.mark.skipif(NODE is None, reason="node is not installed")]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(f"sqlite:///{tmp_path / 'reports.db'}")


@pytest.fixture
def shop() -> Iterator[tuple[str, dict[str, str]]]:
    """A site of another origin than the collector's, and what it shows by path; a browser keeps made-up ones apart."""
    app, shown = FastAPI(openapi_url=None), {"": "<!doctype html><title>shop</title>"}

    @app.get("/{path:path}")
    def page(path: str) -> Response:
        return Response(shown.get(path, ""), media_type="text/javascript" if path.endswith(".js") else "text/html")

    with running(app) as address:
        yield address, shown


@pytest.fixture
def url(store: Store, shop: tuple[str, dict[str, str]]) -> Iterator[str]:
    """A collector of four campaigns, which the page of another site may answer."""
    campaigns = [Campaign.from_dict(one) for one in (COMMUTE, DEVICES, DRINKS, DAILY)]
    with running(create_app(campaigns, store, known_keys(), origins=[shop[0]])) as address:
        yield address


@pytest.mark.long
def test_node_runs_the_tests(url: str) -> None:
    codes = " ".join(new_code(SECRET, number) for number in range(24))
    told = os.environ | {"NOISETTE_URL": url, "NOISETTE_KEY": KEYS["device"], "NOISETTE_CODES": codes}
    tests = sorted(str(one) for one in (PACKAGE / "test").glob("*.test.js"))
    run = subprocess.run([str(NODE), "--test", *tests], env=told, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout
    assert "# skipped 0" in run.stdout


def test_the_package_says_what_it_is() -> None:
    told = json.loads((PACKAGE / "package.json").read_text(encoding="utf-8"))
    assert told["version"] == tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    assert told["type"] == "module"
    assert not [name for name in told if "ependencies" in name]
    assert all((PACKAGE / one["types"]).is_file() for one in told["exports"].values())
    assert CLIENT.joinpath("noisette.js").read_bytes() == (PACKAGE / "src" / "noisette.js").read_bytes()


def test_types_name_what_there_is(tmp_path: Path) -> None:
    for name in ("noisette", "verify"):
        types = (PACKAGE / "types" / f"{name}.d.ts").read_text(encoding="utf-8")
        declared = set(re.findall(r"^export (?:class|function|const) (\w+)", types, re.MULTILINE))
        script, place = tmp_path / f"{name}.mjs", (PACKAGE / "src" / f"{name}.js").as_uri()
        told = "JSON.stringify([Object.keys(own), Reflect.ownKeys(own.Client?.prototype ?? {})])"
        script.write_text(f"import * as own from {json.dumps(place)};\nconsole.log({told});", encoding="utf-8")
        run = subprocess.run([str(NODE), str(script)], capture_output=True, text=True, check=True)
        exported, methods = json.loads(run.stdout)
        assert declared == set(exported)
        assert [method for method in methods if not re.search(rf"\b{method}\(", types)] == []


@pytest.mark.long
def test_the_package_answers(
    url: str, store: Store, shop: tuple[str, dict[str, str]], tmp_path: Path, browser: Browser
) -> None:
    """`npm pack`, `npm install` of what it made, and the example of its README in node's modules and in a browser."""
    if NPM is None:
        pytest.skip("npm is not installed")
    copy, own = tmp_path / "clients" / "js", tmp_path / "own"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("dist", "node_modules", "*.tgz"))
    shutil.copy(ROOT / "LICENSE", tmp_path)
    packed = subprocess.run([NPM, "pack", "--json"], cwd=copy, capture_output=True, text=True, check=False)
    if packed.returncode and re.search("ENOTFOUND|ECONNREFUSED|EAI_AGAIN|ETIMEDOUT|E40[0-9]", packed.stderr):
        pytest.skip("needs esbuild and terser, which npm could not fetch")
    assert packed.returncode == 0, packed.stderr
    [archive] = copy.glob("*.tgz")
    own.mkdir()
    (own / "package.json").write_text('{"private": true, "type": "module"}', encoding="utf-8")
    subprocess.run([NPM, "install", "--offline", "--no-audit", "--no-fund", str(archive)], cwd=own, check=True)
    made = own / "node_modules" / "noisette"
    assert len(gzip.compress((made / "dist" / "noisette.js").read_bytes(), 9)) <= 15_000
    assert (made / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
    example = re.findall(r"```js\n(.*?)```", (made / "README.md").read_text(encoding="utf-8"), re.DOTALL)[0]
    example = example.replace("https://collector.example", url).replace("the-key-for-devices", KEYS["device"])
    kept = "const kept = {};\nglobalThis.localStorage = { getItem: n => kept[n], setItem: (n, x) => { kept[n] = x; } };"
    (own / "example.js").write_text(f"{kept}\n{example}", encoding="utf-8")
    run = subprocess.run([str(NODE), "example.js"], cwd=own, capture_output=True, text=True, check=True)
    assert run.stdout == "{ sent: 1, refused: 0, waiting: 0 }\n"
    site, shown = shop
    shown |= {f"dist/{one.name}": one.read_text(encoding="utf-8") for one in (made / "dist").iterdir()}
    shown["dist/example.js"] = example.replace('"noisette"', '"./noisette.js"')
    shown[""] += '<script type="module" src="/dist/example.js"></script>'
    page = browser.new_context().new_page()
    with page.expect_console_message(lambda message: message.type == "log") as said:
        page.goto(site)
    assert said.value.args[0].json_value() == {"sent": 1, "refused": 0, "waiting": 0}
    campaign = Campaign.from_dict(COMMUTE)
    assert sum(store.periods(campaign).values()) == 2
    values = {"devices": ["watch"]}
    answered = page.evaluate(
        """async ([url, apiKey, values]) => {
          const { Client } = await import("/dist/noisette.js");
          const client = await Client.open(url, { apiKey, epsilon: 2, name: "other" });
          await client.answer("devices", values);
          return client.send();
        }""",
        [url, KEYS["device"], values],
    )
    assert answered == {"sent": 1, "refused": 0, "waiting": 0}
    page.context.close()
