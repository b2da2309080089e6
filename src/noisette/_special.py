"""Special functions of scipy, which is imported when the first of them is called.

Importing scipy.special takes twice as long as importing numpy, and most commands compute no special function.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from noisette._validate import FloatArray


@cache
def _scipy() -> Any:
    from scipy import special

    return special


def _lazy(name: str) -> Callable[..., Any]:
    """Return a function that finds its namesake in scipy.special at every call."""

    def function(*args: Any, **options: Any) -> Any:
        return getattr(_scipy(), name)(*args, **options)

    function.__name__ = function.__qualname__ = name
    return function


betainc = _lazy("betainc")
betaincc = _lazy("betaincc")
betaincinv = _lazy("betaincinv")
chdtr = _lazy("chdtr")
chdtrc = _lazy("chdtrc")
erf = _lazy("erf")
erfcx = _lazy("erfcx")
gammaln = _lazy("gammaln")
log_ndtr = _lazy("log_ndtr")
logsumexp = _lazy("logsumexp")
multigammaln = _lazy("multigammaln")
ndtr = _lazy("ndtr")
ndtri = _lazy("ndtri")
xlog1py = _lazy("xlog1py")
xlogy = _lazy("xlogy")


@cache
def gauss_legendre(count: int) -> tuple[FloatArray, FloatArray]:
    """Return nodes and weights of an integral over [-1, 1], found once: that takes longer than most integrals."""
    found = np.polynomial.legendre.leggauss(count)
    for one in found:
        one.flags.writeable = False
    return found
