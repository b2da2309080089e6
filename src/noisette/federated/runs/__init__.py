"""Federations on this machine: settings, clients that are drawn, Flower's simulation, its apps."""
