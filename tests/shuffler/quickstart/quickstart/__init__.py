"""Softmax regression on MNIST, learnt across nodes."""
