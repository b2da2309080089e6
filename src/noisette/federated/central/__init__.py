"""The central model: a server that clients trust with their updates, and that releases noisy models only."""
