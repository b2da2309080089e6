"""The gradient of each example on its own, recorded while a model is trained in the usual way."""
