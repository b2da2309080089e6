"""Fig 3, small: every method of the second column keeps LHP's matrix, and ours is below what was published."""

from __future__ import annotations

import numpy as np
import pytest
from experiments.hierarchical import regression

from noisette import LevelledResponse


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOISETTE_CACHE", str(tmp_path_factory.getbasetemp() / "graded"))


@pytest.mark.long
def test_every_method_of_the_second_column_keeps_lhp_s_matrix() -> None:
    e = 0.3
    levelled = LevelledResponse(regression._EDGES, tuple(e * k for k in (5, 4, 3, 2, 1)), personalised=True)
    matrix = np.asarray(levelled.guarantee.matrix)
    trainings = regression._same(e)
    assert "ours: auto" in trainings
    for name, training in trainings.items():
        guarantee = training.guarantee
        own = np.full((5, 5), guarantee.epsilon) if guarantee.matrix is None else np.asarray(guarantee.matrix)
        assert np.all(own <= matrix), name
        assert guarantee.delta == 0
    assert levelled.guarantee.epsilon > 5 * e  # what the paper takes for the largest


@pytest.mark.long
@pytest.mark.needs_data
def test_figure() -> None:
    shares: list[float] = []
    study = regression.fig_3(False, shares.append)
    assert shares[-1] == 1
    assert all(len(row) == len(study.columns) for row in study.rows)
    errors = {(row[0], row[1]): list(map(float, row[2:])) for row in study.rows}
    exact, middle = errors["no privacy", "least squares"][0], errors["no privacy", "mean"][0]
    assert exact < middle
    for place in range(2):
        published = [found[place] for (column, _), found in errors.items() if column == "published"]
        for name in ("ours: auto", "OptimalGraded"):
            assert exact < errors["same matrix", name][place] < 0.2 * min(published)
        assert errors["same matrix", "OptimalGraded"][place] < errors["same matrix", "LHP, our steps"][place]
    assert [chart.name for chart in study.charts] == ["fig-3-published", "fig-3-same-matrix"]
