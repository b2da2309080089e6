"""From sums of reports to what they say: distributions, ratios, comparisons and weights."""
