"""The Gaussian model of an estimate's error, for what is known of the true values."""
