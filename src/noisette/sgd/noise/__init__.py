"""How a sum of bounded gradients becomes private: what is summed, and the noise on it."""
