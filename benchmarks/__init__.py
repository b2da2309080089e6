"""Measurements: each file is a program, see its first lines; board/ is a package of its own."""
