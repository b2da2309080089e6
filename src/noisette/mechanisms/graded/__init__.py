"""Mechanisms for values whose range decides how much protection they get."""
