"""Mechanisms for one real number."""
