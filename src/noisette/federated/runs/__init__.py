"""Federations on this machine: settings, Flower's simulation, its apps."""
