"""The client's side on Flower: the mod that answers in private, and what it spends."""
