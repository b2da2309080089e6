"""Guarantees checked: exactly, from a mechanism's own probabilities."""

from noisette.auditing.exact import exact_epsilon

__all__ = ["exact_epsilon"]
