"""Guarantees checked: exactly, from a mechanism's own probabilities, and from the outside, from its reports alone."""

from noisette.auditing.blackbox import Audit, audit
from noisette.auditing.exact import exact_delta, exact_epsilon, exact_matrix

__all__ = ["Audit", "audit", "exact_delta", "exact_epsilon", "exact_matrix"]
