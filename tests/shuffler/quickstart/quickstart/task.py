"""The model and its training: softmax regression, in numpy."""

import numpy as np

RATE, STEPS = 0.5, 20


def start():
    """Return the first model."""
    return {"weight": np.zeros((784, 10), np.float32), "bias": np.zeros(10, np.float32)}


def data(folder):
    """Return the images on this machine's disk as rows between 0 and 1, and their digits."""
    with np.load(folder / "images.npz") as found:
        return found["images"].reshape(len(found["labels"]), -1) / np.float32(255), found["labels"]


def train(model, rows, digits):
    """Return the model after some steps of gradient descent."""
    weight, bias = model["weight"].copy(), model["bias"].copy()
    truth = np.eye(10, dtype=np.float32)[digits]
    for _ in range(STEPS):
        scores = rows @ weight + bias
        chances = np.exp(scores - scores.max(axis=1, keepdims=True))
        chances /= chances.sum(axis=1, keepdims=True)
        error = (chances - truth) / len(rows)
        weight -= RATE * rows.T @ error
        bias -= RATE * error.sum(axis=0)
    return {"weight": weight, "bias": bias}


def accuracy(model, rows, digits):
    """Return the share of images whose digit is found."""
    return float(np.mean((rows @ model["weight"] + model["bias"]).argmax(axis=1) == digits))
