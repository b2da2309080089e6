"""Mechanisms for one category of a public list."""
