"""Caps of a sphere: their mass, draws from them, and reports of them on a lattice."""
