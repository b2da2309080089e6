"""What the sums of a campaign say, and the files that say it."""
