"""Attack: let a fork, a copy or a pickle hand the same noise to two holders, and subtract.

Two releases with the same noise differ by exactly what their data differ by: whoever has both reads an example off.
Each attempt here asks two holders of what was one generator for random bits or noisy weights. Sixteen bytes that are
equal by chance are a false alarm of 2^-128, one double of 2^-53.
"""

import copy
import ctypes
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest

from noisette import _random

pytestmark = pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # of forks beside threads


def in_fork(job, fork=os.fork):
    """Return what a job answers in a child of this process."""
    reading, writing = os.pipe()
    child = fork()
    if child == 0:
        signal.alarm(20)  # a child that waits for a lock for ever answers nothing
        try:
            os.write(writing, job())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as answers:
        made = answers.read()
    os.waitpid(child, 0)
    return made


def bits(rng):
    """Return bits as the samplers draw them: many words, words, halves of words and doubles."""
    words = rng.bit_generator.words(2).tobytes() if _random.is_secret(rng) else b""
    drawn = words, rng.bytes(16), rng.integers(0, 2**32, 3, dtype=np.uint32).tobytes(), rng.random(2).tobytes()
    return b"".join(drawn)


def secret():
    """Return a generator that has been in use: half a word is kept back, and part of a block of the cipher."""
    rng = _random.generator(None)
    rng.integers(0, 2**32, 3, dtype=np.uint32)
    rng.bit_generator.words(1)
    return rng


def test_two_forks_of_one_generator_and_their_parent():
    rng = secret()
    drawn = [in_fork(lambda: bits(rng)), in_fork(lambda: bits(rng)), bits(rng)]
    assert len({part[:16] for part in drawn}) == 3
    assert len({part[16:28] for part in drawn}) == 3


def test_a_fork_of_a_fork():
    rng = secret()
    drawn = in_fork(lambda: in_fork(lambda: bits(rng)) + bits(rng))
    assert drawn[: len(drawn) // 2] != drawn[len(drawn) // 2 :]


DRAWS = {
    "words": lambda rng: rng.bit_generator.words(4).tobytes(),
    "raw": lambda rng: rng.bit_generator.random_raw(4).tobytes(),
    "doubles": lambda rng: rng.random(4).tobytes(),
    "one double": lambda rng: float(rng.random()).hex().encode(),
    "integers": lambda rng: rng.integers(0, 2**63, 4).tobytes(),
    "bytes": lambda rng: rng.bytes(16),
    "normal": lambda rng: rng.standard_normal(4).tobytes(),
    "permutation": lambda rng: rng.permutation(40).tobytes(),
}


@pytest.mark.skipif(sys.platform != "linux", reason="the C library is found as Linux has it")
@pytest.mark.parametrize("paged", [True, False], ids=["page", "number of the process"])
@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
def test_a_fork_by_a_c_library(draw, paged, monkeypatch):
    """Python runs nothing in the child of a fork that it did not make, and two such children drew the same."""
    if not paged:
        monkeypatch.setattr("noisette._secret._page", None)
    rng, fork = secret(), ctypes.PyDLL(None).fork
    drawn = [in_fork(lambda: draw(rng), fork), in_fork(lambda: draw(rng), fork), draw(rng)]
    assert len(set(drawn)) == 3


def test_forks_of_a_seeded_generator_repeat_as_tests_need():
    """The twin: the same question, asked of a generator that does repeat, is answered with equal bits."""
    rng = _random.generator(7)
    assert in_fork(lambda: bits(rng)) == in_fork(lambda: bits(rng)) == bits(rng)


@pytest.mark.parametrize("how", [copy.deepcopy, copy.copy, lambda rng: pickle.loads(pickle.dumps(rng))])
def test_copies_and_pickles_of_a_generator(how):
    rng = secret()
    other = how(rng)
    assert bits(other)[:16] != bits(rng)[:16]


@pytest.mark.parametrize("how", [copy.deepcopy, copy.copy, lambda bits: pickle.loads(pickle.dumps(bits))])
def test_copies_and_pickles_of_the_bits_below_it(how):
    source = secret().bit_generator
    other = how(source)
    assert np.random.Generator(other).bytes(16) != np.random.Generator(source).bytes(16)


def test_two_loads_of_one_pickle():
    stored = pickle.dumps(secret())
    assert bits(pickle.loads(stored))[:16] != bits(pickle.loads(stored))[:16]


def test_a_pickle_holds_no_key():
    """What is stored of one generator is what is stored of any other."""
    assert pickle.dumps(secret()) == pickle.dumps(secret())


def test_the_state_is_not_given_out():
    rng = secret()
    for peek in (lambda: rng.bit_generator.state, lambda: rng.bit_generator.__getstate__(), rng.bit_generator.jumped):
        with pytest.raises(TypeError):
            peek()
    with pytest.raises(AttributeError):
        rng.bit_generator.state = {}


def test_a_fork_while_another_thread_draws():
    """The lock that the other thread holds is open in the child, where that thread does not live."""
    rng = secret()
    rng.bit_generator.lock.acquire()
    try:
        drawn = {}

        def elsewhere():
            drawn["first"], drawn["second"] = in_fork(lambda: bits(rng)), in_fork(lambda: bits(rng))

        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join(600)
    finally:
        rng.bit_generator.lock.release()
    assert len({*drawn.values(), b""}) == 3


def _drawn(rng):
    return bits(rng)


@pytest.mark.long
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_that_are_given_one_generator(method):
    rng = secret()
    with multiprocessing.get_context(method).Pool(2) as pool:
        drawn = [*pool.map(_drawn, [rng, rng, rng], chunksize=1), bits(rng)]
    assert len({part[:16] for part in drawn}) == 4


def test_a_regression_that_is_stored_while_it_learns():
    """Two copies of a half-trained model ask the next users with noise of their own; the seeded twin repeats it."""
    from noisette.regression import PrivateLinearRegression  # here: spawned workers import this file

    rows = np.random.default_rng(1).uniform(-1, 1, (60, 2))

    def halves(seed):
        model = PrivateLinearRegression(epsilon=1.0, batch=20, random_state=seed)
        model._learn(rows[:30], rows[:30, 0], restart=True)
        copies = copy.deepcopy(model), pickle.loads(pickle.dumps(model)), pickle.loads(pickle.dumps(model))
        return [one._learn(rows[30:], rows[30:, 0], restart=False)._end().coef_.tobytes() for one in copies]

    assert len(set(halves(None))) == 3
    assert len(set(halves(7))) == 1


TRAINING = textwrap.dedent(
    """
    import copy, os, pickle
    import torch
    from torch.utils.data import DataLoader, TensorDataset
    from noisette import sgd

    torch.set_num_threads(1)
    torch.manual_seed(1)
    data = TensorDataset(torch.randn(40, 4), torch.randn(40, 1))

    def in_fork(job):
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.write(writing, job())
            finally:
                os._exit(0)
        os.close(writing)
        with os.fdopen(reading, "rb") as answers:
            made = answers.read()
        os.waitpid(child, 0)
        assert made
        return made

    def samples(loader):
        return b"".join(inputs.numpy().tobytes() for inputs, _ in loader)

    def weights(private):
        inputs, targets = next(iter(private.loader))
        private.optimizer.zero_grad()
        torch.nn.functional.mse_loss(private.model(inputs), targets).backward()
        private.optimizer.step()
        return private.model.weight.detach().numpy().tobytes()

    for perturb, seed in (("gaussian", None), ("tensor", None), ("geodp", None), ("gaussian", 7)):
        model = torch.nn.Linear(4, 1)
        private = sgd.make_private(
            model,
            torch.optim.SGD(model.parameters(), lr=0.1),
            DataLoader(data, batch_size=10),
            target=(2.0, 1e-3),
            epochs=1,
            perturb=perturb,
            rng=seed,
        )
        jobs = (lambda: weights(private), lambda: samples(private.loader))
        drawn = [{in_fork(job) for _ in range(2)} for job in jobs]
        twins = [copy.deepcopy(private.loader), pickle.loads(pickle.dumps(private.loader)), private.loader]
        print(len(drawn[0]), len(drawn[1]), len({samples(loader) for loader in twins}))
    """
)


@pytest.mark.long
def test_two_forks_of_one_private_run():
    """Noisy weights and samples of two forks, and the samples of copied and stored loaders; a seeded run repeats."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", TRAINING],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    *secret_runs, seeded_run = done.stdout.splitlines()
    assert secret_runs == ["2 2 3"] * 3
    assert seeded_run == "1 1 1"
