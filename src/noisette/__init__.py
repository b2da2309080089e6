"""Noisette: collect, estimate and learn from sensitive data under local differential privacy.

The names are in `__init__.pyi`. `import noisette` itself imports nothing else, not even numpy.
"""

from typing import Any

from lazy_loader import attach_stub

from noisette import _moved

_public, __dir__, __all__ = attach_stub(__name__, __file__)
_moved.install()


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("noisette")
    return _public(name)
