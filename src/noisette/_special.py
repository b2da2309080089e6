"""Special functions of scipy, which is imported when the first of them is called.

Importing scipy.special takes twice as long as importing numpy, and most commands compute no special function.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def _lazy(name: str) -> Callable[..., Any]:
    """Return a function that finds its namesake in scipy.special at every call."""

    def function(*args: Any, **options: Any) -> Any:
        from scipy import special

        return getattr(special, name)(*args, **options)

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
