"""Commands that say what there is, and show whether it holds."""
