"""What noise does to a gradient, before any training: no torch is needed here."""
