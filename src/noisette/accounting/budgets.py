"""Amounts of budget as exact decimals, and what a ledger says about them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context, Decimal
from fractions import Fraction
from numbers import Real
from typing import Any

from noisette.accounting.composition import zcdp
from noisette.accounting.conversions import zcdp_epsilon
from noisette.accounting.curves import Released
from noisette.guarantees import Guarantee, changes

Amount = float | Decimal | Fraction

PLACES = {"epsilon": 12, "delta": 18, "rho": 15}  # decimal places that are kept; debits round up, limits down
UNSTATED = ""  # model and relation of an account that a former version opened
_LARGEST_INTEGER = 2**62  # of the integers in a ledger's file
_DIGITS = 30  # before the point: no such number fits, whatever its places
_EXACT = Context(prec=400)


class LedgerError(RuntimeError):
    """The ledger's file cannot be used; nothing was debited."""


class UnknownAccount(LedgerError):
    """No such account was opened."""


class AlreadyDebited(LedgerError):
    """This idempotency key was used before: whether its release happened is not known here."""


class BudgetExceeded(RuntimeError):
    """A debit would exceed the limit; nothing was debited. ``asked`` and ``left`` hold the numbers by name."""

    def __init__(self, key: str, asked: dict[str, Decimal], left: dict[str, Decimal]) -> None:
        self.key, self.asked, self.left = key, asked, left
        super().__init__(
            f"Account {key!r} has {_listed(left)} left, this release asks for {_listed(asked)}. "
            "Nothing was debited: do not release, or release with a smaller budget."
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel from one process to another with its numbers."""
        return type(self), (self.key, self.asked, self.left)


@dataclass(frozen=True)
class Balance:
    """An account: unit, model and relation of its budget, its limit, what was spent, and what is left, all exact.

    For ``composition="zcdp"`` rho is what adds up; ``epsilon`` and ``delta`` are then what was spent in total as an
    (epsilon, delta) guarantee.
    """

    key: str
    unit: str
    model: str
    relation: str
    composition: str
    limit_epsilon: Decimal
    limit_delta: Decimal
    epsilon: Decimal
    delta: Decimal
    rho: Decimal
    debits: int
    left: dict[str, Decimal]


@dataclass(frozen=True)
class DebitReceipt:
    """A debit that is in the file. ``replayed`` is True where it was there before.

    ``converted`` says from which terms to which the guarantee was converted, and is empty where it was in those of the
    account.
    """

    number: int
    key: str
    epsilon: Decimal
    delta: Decimal
    rho: Decimal
    note: str
    idempotency_key: str | None
    converted: str = ""
    replayed: bool = False


def amounts_of(spent: Any, account: dict[str, Any]) -> tuple[dict[str, int], str]:
    """Return what a release takes off an account, in units of the file: epsilon, delta and rho; and what was converted.

    A number is taken to be in the account's own terms; a guarantee is converted to them if that is proved.
    """
    if UNSTATED in (account["model"], account["relation"]):
        raise LedgerError(
            f"Account {account['key']!r} was opened by a version that wrote down no model and no relation. Nothing was "
            "debited. Open it again with its limits and the model and relation of all its debits so far, "
            "e.g. model='local', relation='any-pair'; or open another account."
        )
    stated = spent.guarantee if isinstance(spent, Released) else spent
    counted, converted = stated, ""
    if isinstance(stated, Guarantee):
        terms: dict[str, Any] = {name: account[name] for name in ("unit", "model", "relation")}
        try:
            counted = stated.implied(**terms)
        except ValueError as error:
            raise ValueError(f"Account {account['key']!r} refuses a debit. {error} Nothing was debited.") from error
        if any(getattr(stated, name) != value for name, value in terms.items()):
            converted = f"{stated}, counted as {counted}"
    costs: dict[str, Any] = {"epsilon": counted, "delta": 0, "rho": 0}
    if account["composition"] == "zcdp":
        if not isinstance(stated, Guarantee):
            spent = Guarantee(float(as_decimal(in_units(spent, "epsilon", ROUND_CEILING), "epsilon")))
        rho = zcdp(spent)
        if isinstance(stated, Guarantee) and changes(stated.relation, account["relation"]) == 2:
            rho *= 4  # group privacy: Bun, Steinke 2016, Proposition 1.9
            rho = min(rho, zcdp(counted)) if counted.delta == 0 else rho
        costs |= {"epsilon": 0, "rho": rho}
    elif isinstance(counted, Guarantee):
        costs |= {"epsilon": counted.epsilon, "delta": counted.delta}
    amounts = {name: in_units(cost, name, ROUND_CEILING) for name, cost in costs.items()}
    if not any(amounts.values()):
        raise ValueError(f"Expected a release that costs something, got {spent!r}.")
    return amounts, converted


def in_units(value: Any, name: str, rounding: str) -> int:
    """Return a budget as an integer of the last decimal place that is kept, rounded to the safe side.

    A float counts as the decimal number that Python prints for it, so that ten times 0.1 is 1.
    """
    if isinstance(value, bool) or not isinstance(value, Real | Decimal):
        raise TypeError(f"Expected {name}={value!r} to be a number, a Guarantee or a mechanism.")
    scale: int = 10 ** PLACES[name]
    if isinstance(value, Fraction):
        scaled = value * scale
        units = math.ceil(scaled) if rounding == ROUND_CEILING else math.floor(scaled)
    else:
        exact = Decimal(value if isinstance(value, Decimal | int) else repr(float(value)))
        if not exact.is_finite() or exact.adjusted() > _DIGITS:
            raise ValueError(f"Expected {name}={value!r} to be finite, and small enough for a ledger.")
        units = int(_EXACT.multiply(exact, Decimal(scale)).to_integral_value(rounding=rounding))
    if units < 0:
        raise ValueError(f"Expected {name}={value!r} >= 0.")
    if units > _LARGEST_INTEGER:
        raise ValueError(f"Expected {name}={value!r} <= {_LARGEST_INTEGER / scale:g}, the largest that a ledger holds.")
    return units


def as_decimal(units: int, name: str) -> Decimal:
    """Return units of the file as an exact decimal number without trailing zeros."""
    value = Decimal(units).scaleb(-PLACES[name], _EXACT).normalize(_EXACT)
    return value.quantize(Decimal(1)) if value == value.to_integral_value() else value


def balance_of(account: dict[str, Any]) -> Balance:
    """Return an account's row as a balance."""
    limit_delta, rho = as_decimal(account["limit_delta"], "delta"), as_decimal(account["rho"], "rho")
    epsilon, delta = as_decimal(account["epsilon"], "epsilon"), as_decimal(account["delta"], "delta")
    names = ["epsilon", "delta"]
    if account["composition"] == "zcdp":
        names = ["rho"]
        if rho > 0:
            total = zcdp_epsilon(float(rho), float(limit_delta))
            epsilon, delta = as_decimal(in_units(total, "epsilon", ROUND_CEILING), "epsilon"), limit_delta
    return Balance(
        key=account["key"],
        unit=account["unit"],
        model=account["model"],
        relation=account["relation"],
        composition=account["composition"],
        limit_epsilon=as_decimal(account["limit_epsilon"], "epsilon"),
        limit_delta=limit_delta,
        epsilon=epsilon,
        delta=delta,
        rho=rho,
        debits=account["debits"],
        left={name: as_decimal(account[f"limit_{name}"] - account[name], name) for name in names},
    )


def receipt_of(row: Any, *, replayed: bool = False) -> DebitReceipt:
    """Return a debit's row as a receipt."""
    number, key, epsilon, delta, rho, note, idempotency_key, converted = row
    return DebitReceipt(
        number=number,
        key=key,
        epsilon=as_decimal(epsilon, "epsilon"),
        delta=as_decimal(delta, "delta"),
        rho=as_decimal(rho, "rho"),
        note=note,
        idempotency_key=idempotency_key,
        converted=converted,
        replayed=replayed,
    )


def replay_of(first: Any, amounts: dict[str, int], idempotency_key: str) -> DebitReceipt:
    """Return the receipt of a debit that was made before, if it was the same one."""
    if tuple(first[2:5]) != tuple(amounts[name] for name in PLACES):
        had = {name: as_decimal(units, name) for name, units in zip(PLACES, first[2:5], strict=True)}
        raise ValueError(
            f"Idempotency key {idempotency_key!r} was used for another amount: {_listed(had)}. Take a new key."
        )
    return receipt_of(first, replayed=True)


def _listed(amounts: dict[str, Decimal]) -> str:
    return ", ".join(f"{name}={value:f}" for name, value in amounts.items())
