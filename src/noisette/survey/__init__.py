"""The front door: what is asked of people, what to expect, and what their reports say."""
