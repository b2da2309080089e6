"""Mechanisms for whole tensors."""
