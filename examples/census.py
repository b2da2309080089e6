"""One survey with every kind of question on real people: Adult and the American Community Survey, against the truth.

python examples/census.py                    48,842 people of Adult, 300,000 of the ACS; a minute or two
python examples/census.py --people 3000      fewer

The data are found as `noisette.datasets` says. Each line has the estimate, its 95 % interval and the truth about the
people who answered: about one interval in twenty does not hold it.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import pandas as pd

import noisette as nz
from noisette import datasets

INCOMES = ["wages", "capital gains", "capital losses"]
JOINT = [("education", "pay"), ("marital", "years at school"), ("sex", "income from")]


def adult(people: int) -> pd.DataFrame:
    """Return people of Adult with answers of every kind; an occupation that is not known was not answered."""
    table = datasets.table("adult").to_pandas().head(people)
    has = np.stack([table["workclass"] != "?", table["capital_gain"] > 0, table["capital_loss"] > 0], axis=1)
    sources = [[name for name, own in zip(INCOMES, row, strict=True) if own] for row in has]
    return pd.DataFrame(
        {
            "age": table["age"],
            "hours": table["hours_per_week"].clip(0, 99),
            "education": np.where(table["education_num"] >= 13, "degree", "no degree"),
            "pay": table["income"].str.rstrip(".").map({"<=50K": "up to 50K", ">50K": "above 50K"}),
            "marital": np.where(table["marital_status"].str.startswith("Married"), "married", "not married"),
            "years at school": table["education_num"],
            "sex": table["sex"],
            "income from": sources,
            "occupation": table["occupation"].where(table["occupation"] != "?", None),
            "country": table["native_country"].str[:16],
            "region": np.where(table["native_country"] == "United-States", "born in the US", "born elsewhere"),
        }
    )


def adult_survey() -> nz.Survey:
    """Return the survey: nine questions of five kinds, three pairs, one public group."""
    jobs = sorted(set(datasets.table("adult", ["occupation"]).to_pandas()["occupation"]) - {"?"})
    return nz.Survey(
        [
            nz.Number("age", 17, 90, want="quantiles", whole=True),
            nz.Number("hours", 0, 99),
            nz.Choice("education", ["degree", "no degree"]),
            nz.Choice("pay", ["up to 50K", "above 50K"]),
            nz.Choice("marital", ["married", "not married"]),
            nz.Number("years at school", 1, 16),
            nz.Choice("sex", ["Female", "Male"]),
            nz.Choices("income from", INCOMES),
            nz.Choice("occupation", jobs, optional=True),
            nz.Text("country", longest=16),
        ],
        epsilon=4.0,
        groups={"region": ["born in the US", "born elsewhere"]},
        joint=JOINT,
    )


def adult_lines(people: pd.DataFrame, results: Any) -> list[tuple[Any, ...]]:
    """Return what was estimated beside the truth."""
    lines = []
    low, high = results["age"].quantile_interval(0.5)
    lines.append(("median age", results["age"].quantile(0.5), low, high, people["age"].median()))
    lines.append(("mean hours", results["hours"].mean, *results["hours"].interval(), people["hours"].mean()))
    pairs = pd.crosstab(people["education"], people["pay"], normalize=True)
    told = [results.crosstab("education", "pay", what) for what in ("share", "low", "high")]
    for row in pairs.index:
        for column in pairs.columns:
            lines.append((f"{row}, {column}", *(one.loc[row, column] for one in told), pairs.loc[row, column]))
    by = results.by("marital").table().set_index("group")
    for label, truth in people.groupby("marital")["years at school"].mean().items():
        own = by.loc[f"marital={label}"]
        lines.append((f"years at school, {label}", own["value"], own["low"], own["high"], truth))
    told = [results.crosstab("sex", "income from", what) for what in ("share", "low", "high")]
    for sex in ("Female", "Male"):
        for name in INCOMES:
            truth = np.mean((people["sex"] == sex) & people["income from"].map(lambda row, name=name: name in row))
            lines.append((f"{sex}, {name}", *(one.loc[sex, name] for one in told), truth))
    job, known = results["occupation"], people["occupation"].dropna()
    ends = job.interval()
    for label, truth in known.value_counts(normalize=True).head(3).items():
        lines.append((f"occupation {label}", job.shares[label], *ends.loc[label], truth))
    rate = results["occupation answered"].table().iloc[0]
    lines.append(("occupation answered", rate["value"], rate["low"], rate["high"], len(known) / len(people)))
    for row in results["country"].top(3).itertuples():
        lines.append((f"country {row.text}", row.share, row.low, row.high, np.mean(people["country"] == row.text)))
    return lines


def acs_lines(people: int) -> list[tuple[Any, ...]]:
    """Ask people of the ACS for hours, wages and state: a median, a mean, and shares of a longer list."""
    columns = ["WKHP", "AGEP", "STATE", "SEX"]
    table = datasets.table("acs", columns).to_pandas().sample(people, random_state=1)
    answers = pd.DataFrame(
        {
            "age": table["AGEP"].clip(0, 99),
            "hours": table["WKHP"].fillna(0).clip(0, 99),
            "state": table["STATE"].astype(int).astype(str),
        }
    )
    states = sorted(answers["state"].unique(), key=int)
    survey = nz.Survey(
        [nz.Number("age", 0, 99, want="quantiles", whole=True), nz.Number("hours", 0, 99), nz.Choice("state", states)],
        epsilon=2.0,
    )
    results = survey.estimate(survey.privatize(answers, rng=5))
    low, high = results["age"].quantile_interval(0.5)
    lines = [("ACS: median age", results["age"].quantile(0.5), low, high, answers["age"].median())]
    lines.append(("ACS: mean hours", results["hours"].mean, *results["hours"].interval(), answers["hours"].mean()))
    ends = results["state"].interval()
    for label, truth in answers["state"].value_counts(normalize=True).head(3).items():
        lines.append((f"ACS: state {label}", results["state"].shares[label], *ends.loc[label], truth))
    return lines


def compared(people: int, acs: int) -> pd.DataFrame:
    """Return all lines, and whether each interval holds the truth."""
    answers, survey = adult(people), adult_survey()
    results = survey.estimate(survey.privatize(answers, rng=7))
    columns = ["quantity", "estimate", "low", "high", "truth"]
    table = pd.DataFrame([*adult_lines(answers, results), *acs_lines(acs)], columns=columns)
    numbers = table[columns[1:]].astype(float)
    table["holds"] = (numbers["low"] <= numbers["truth"]) & (numbers["truth"] <= numbers["high"])
    return table


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--people", type=int, default=0, help="of Adult and of the ACS; all, and 300,000, by default")
    asked = parser.parse_args()
    table = compared(asked.people or 48_842, asked.people or 300_000)
    print(table.round(3).to_string(index=False))
    print(f"{int(table['holds'].sum())} of {len(table)} intervals hold the truth.")


if __name__ == "__main__":
    main()
