"""What a person sees: numbers with the right digits, JSON without NaN, a bar only when it is wanted."""

import io
import json
import math

import numpy as np
import pytest

import noisette as nz
from noisette import _terminal


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (39.7312, 0.77, "39.73"),
        (39819.4, 1279.0, "39,819"),
        (-0.00123, 0.014, "-0.001"),
        (0.5, 0.0, "0.5"),
        (0.123456, math.nan, "0.1235"),
        (1.5e-12, 1e-13, "1.500e-12"),
        (math.nan, math.inf, "-"),
        (3.0, math.inf, "3"),
    ],
)
def test_numbers_show_the_digits_that_mean_something(value: float, error: float, text: str) -> None:
    assert _terminal.number(value, error) == text


def test_json_takes_what_numpy_has() -> None:
    payload = {
        "a": np.asarray([1.0, np.nan, np.inf]),
        "b": np.int64(3),
        "c": (True, None, "é"),
        "d": {"e": np.bool_(True)},
    }
    assert json.loads(_terminal.to_json(payload)) == {
        "a": [1.0, None, None],
        "b": 3,
        "c": [True, None, "é"],
        "d": {"e": True},
    }


def test_guarantees_name_unit_model_and_relation() -> None:
    assert _terminal.describe(nz.Guarantee(1.5, 1e-6)) == (
        "ε = 1.5, δ = 1e-06 per record, local model, relation any-pair"
    )


class _Screen(io.StringIO):
    def __init__(self, terminal: bool) -> None:
        super().__init__()
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal


@pytest.mark.parametrize(("terminal", "patience", "shown"), [(True, 0, True), (True, 60, False), (False, 0, False)])
def test_a_bar_appears_on_a_terminal_after_a_while(
    terminal: bool, patience: float, shown: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = _Screen(terminal)
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setattr(_terminal, "_PATIENCE", patience)
    monkeypatch.setenv("TERM", "xterm")
    with _terminal.progress("Working hard") as advance:
        for share in (0.1, 0.5, 1.0):
            advance(share)
    assert ("Working hard" in screen.getvalue()) == shown
