"""Texts that nobody listed: reports of prefixes, and the search for the frequent ones."""
