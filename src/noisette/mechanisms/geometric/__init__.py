"""Mechanisms that work on the direction and the magnitude of a vector."""
