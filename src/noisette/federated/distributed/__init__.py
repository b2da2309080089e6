"""The distributed model: clients add shares of noise, and secure aggregation opens the sum of their updates only."""
