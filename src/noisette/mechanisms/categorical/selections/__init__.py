"""Selections: several categories chosen of one list."""
