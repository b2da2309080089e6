"""Mechanisms for vectors."""
