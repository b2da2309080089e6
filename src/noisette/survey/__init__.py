"""The front door: what is asked of people, what to expect, and what their reports say."""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
