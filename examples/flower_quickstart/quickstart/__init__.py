"""Federated learning on MNIST with a privacy budget."""
