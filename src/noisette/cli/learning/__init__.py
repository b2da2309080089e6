"""Commands that learn models, from a table, from images or across devices."""
