"""Where reports come from, files or a collector's database, and where they are summed, here or on a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from noisette._files import need_packages
from noisette._validate import FloatArray
from noisette.core import Aggregate

if TYPE_CHECKING:
    from noisette.aggregation.partitions import Partitioned, S
    from noisette.survey.results import Results

Distributions = Sequence[tuple[FloatArray, FloatArray]]


def aggregate_here(files: Sequence[str], shape: bool) -> tuple[Aggregate, Distributions]:
    """Sum report files in this process, and reconstruct distributions where that is asked."""
    from noisette.aggregation import ReportFile, aggregate_files

    opened = [ReportFile.open(path) for path in files]
    with _counting(sum(file.users for file in opened) * (2 if shape else 1)) as count:
        aggregate = aggregate_files(files, on_progress=count)
        if not shape:
            return aggregate, ()
        from noisette.enhancement.reconstruction import distributions

        return aggregate, distributions(opened, on_progress=count)


def aggregate_on_cluster(files: Sequence[str], address: str) -> Aggregate:
    """Sum report files on a Ray cluster."""
    from noisette.aggregation import split_files

    return _summed(split_files(map(Path, files)), address)


def aggregate_campaign(
    databases: Sequence[str], campaign: str, period: str | None, address: str | None
) -> tuple[Aggregate, ...]:
    """Sum what a collector has stored of a campaign, here or on a Ray cluster; one aggregate for each mechanism."""
    url = _database(databases, campaign)
    from noisette.collector import split_campaign

    return _summed(split_campaign(url, campaign, period=period), address).aggregates


def results_by_period(
    databases: Sequence[str], campaign: str, address: str | None, method: str, level: float
) -> dict[str, Results]:
    """Return what each period of a campaign says, of all that a collector has stored."""
    from noisette.survey.results import Results, SurveyAggregate

    url, found = _database(databases, campaign), {}
    from noisette.collector import campaign_periods, split_campaign

    asked, periods = campaign_periods(url, campaign)
    for period in periods:
        sums = _summed(split_campaign(url, campaign, period=period), address)
        # over all public groups: only everybody is compared
        found[period] = Results(
            SurveyAggregate(asked.survey, {0: replace(sums, layout=asked.survey.layout)}), method, level
        )
    return found


def _database(databases: Sequence[str], campaign: str) -> str:
    """Return the one database that a campaign is read from."""
    if len(databases) != 1:
        raise ValueError(f"Expected one database for --campaign {campaign}, got {len(databases)}.")
    need_packages("Reading a database", ("sqlalchemy",), "collector")
    return databases[0]


def _summed(reports: Partitioned[S], address: str | None) -> S:
    """Sum partitions and show how far it is."""
    from noisette.aggregation import aggregate_partitions

    with _counting(reports.users) as count:
        if address is None:
            return aggregate_partitions(reports, on_progress=count)
        from noisette.scale import aggregate_on_ray

        return aggregate_on_ray(reports, address=address, on_progress=count)


@contextmanager
def _counting(total: int) -> Iterator[Callable[[int], None]]:
    """Show progress to this many users."""
    from noisette._terminal import progress

    done = 0
    with progress("Aggregating") as advance:

        def count(users: int) -> None:
            nonlocal done
            done += users
            advance(done / total)

        yield count
