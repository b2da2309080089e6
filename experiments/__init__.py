"""Experiments of the papers: what is claimed against what is obtained. Run them with `noisette reproduce`."""
