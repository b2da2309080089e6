"""EM against an independent optimiser; tables against closed forms and other quadratures; distances to known inputs."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import chi2, laplace, norm

import noisette as nz
from noisette.enhancement import Reconstruction, expectation_maximization, reconstruct
from noisette.enhancement.channel import BinnedChannel
from noisette.enhancement.reconstruction import smoothed_as_needed


def square_wave_table(epsilon, bins):
    """Chances of the report bins of the square wave on [0, 1], averaged over each input bin, from its own formula.

    The window [t - b, t + b] has density p = e^e / (2 b e^e + 1), the rest q = p / e^e.
    """
    e = np.exp(epsilon)
    b = (epsilon * e - e + 1) / (2 * e * (e - 1 - epsilon))
    q = 1 / (2 * b * e + 1)
    edges = np.linspace(-b, 1 + b, 2 * bins + 1)
    t = (np.arange(bins * 2_000) + 0.5) / (bins * 2_000)
    below = q * (edges[:, None] + b) + (e - 1) * q * np.clip(edges[:, None] - (t - b), 0, 2 * b)
    return np.diff(below, axis=0).reshape(2 * bins, bins, -1).mean(axis=2)


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 4.0, 9.0])
def test_square_wave_table_against_its_formula(epsilon):
    found = BinnedChannel.of(nz.SquareWave(epsilon=epsilon), bins=16).matrix
    expected = square_wave_table(epsilon, 16)
    assert found.sum(axis=0) == pytest.approx(1)
    assert found == pytest.approx(expected, abs=2e-4 * expected.max())


@pytest.mark.slow
def test_a_table_of_a_wrong_width_is_rejected():
    """The twin: one percent more budget changes the table by more than the tolerance above."""
    found = BinnedChannel.of(nz.SquareWave(epsilon=1.01), bins=16).matrix
    expected = square_wave_table(1.0, 16)
    assert np.max(np.abs(found - expected)) > 10 * 2e-4 * expected.max()


@pytest.mark.parametrize("mechanism", [nz.Laplace(epsilon=1.0), nz.Laplace(epsilon=8.0, domain=nz.Interval(0, 10))])
def test_laplace_table_against_its_distribution(mechanism):
    channel = BinnedChannel.of(mechanism, bins=8)
    low, high = mechanism.domain.low, mechanism.domain.high
    x = low + (high - low) * (np.arange(8 * 400) + 0.5) / (8 * 400)
    scale = (high - low) / mechanism.epsilon
    expected = np.diff(laplace.cdf(channel.edges[:, None], x, scale), axis=0).reshape(-1, 8, 400).mean(axis=2)
    assert channel.matrix == pytest.approx(expected, abs=2e-5)


def test_gaussian_table_against_its_distribution():
    mechanism = nz.Gaussian(epsilon=1.0, delta=1e-5)
    channel = BinnedChannel.of(mechanism, bins=8)
    x = -1 + 2 * (np.arange(8 * 400) + 0.5) / (8 * 400)
    deviation = np.sqrt(float(mechanism.moments(0.0).variance))
    expected = np.diff(norm.cdf(channel.edges[:, None], x, deviation), axis=0).reshape(-1, 8, 400).mean(axis=2)
    assert channel.matrix == pytest.approx(expected, abs=1e-6)


SCALARS = [name for name, cls in nz.CATALOGUE.items() if ".scalar." in cls.__module__]


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [1.0, 12.0])
@pytest.mark.parametrize("name", SCALARS)
def test_table_against_reports(name, epsilon):
    """100,000 reports of inputs spread over the domain fall in the bins as the table says; chi-squared at 1e-6."""
    mechanism = nz.CATALOGUE[name].example(epsilon)
    channel = BinnedChannel.of(mechanism, bins=8)
    assert channel.matrix.sum(axis=0) == pytest.approx(1)
    rng = np.random.default_rng(1)
    size = channel.matrix.shape[1]
    if channel.inputs.size == size:
        x = rng.choice(channel.inputs, 100_000)
    else:
        x = rng.uniform(mechanism.domain.low, mechanism.domain.high, 100_000)
    counts = channel.count(mechanism.privatize(x, rng=2))
    expected = 100_000 * channel.matrix.mean(axis=1)
    common = expected > 5
    statistic = np.sum((counts - expected)[common] ** 2 / expected[common])
    assert statistic < chi2.isf(1e-6, int(common.sum()))
    assert counts.sum() == 100_000


def test_likelihood_never_falls():
    rng = np.random.default_rng(2)
    table = rng.dirichlet(np.ones(12), 7).T
    counts = rng.multinomial(5_000, table @ rng.dirichlet(np.ones(7)))
    path = [expectation_maximization(table, counts, max_iterations=k).log_likelihood for k in range(1, 60)]
    assert np.all(np.diff(path) >= -1e-9)


def test_em_reaches_the_maximum_of_an_independent_optimiser():
    rng = np.random.default_rng(3)
    table = rng.dirichlet(np.ones(12), 5).T
    counts = rng.multinomial(20_000, table @ np.array([0.4, 0.3, 0.2, 0.1, 0.0]))
    other = minimize(
        lambda p: -counts @ np.log(table @ p),
        np.full(5, 0.2),
        method="SLSQP",
        bounds=[(0, 1)] * 5,
        constraints={"type": "eq", "fun": lambda p: p.sum() - 1},
        options={"ftol": 1e-12, "maxiter": 500},
    )
    found = expectation_maximization(table, counts, tolerance=1e-14, max_iterations=200_000)
    assert found.log_likelihood >= -other.fun - 1e-3
    assert found.probabilities == pytest.approx(other.x, abs=5e-3)
    assert found.converged


def test_one_step_with_smoothing():
    table = np.array([[0.6, 0.2, 0.1], [0.3, 0.5, 0.2], [0.1, 0.3, 0.7]])
    counts = np.array([5.0, 3.0, 2.0])
    p = np.full(3, 1 / 3)
    plain = p * (table.T @ (counts / (table @ p))) / 10
    smooth = np.array([(3 * plain[0] + plain[1]) / 4, plain @ [0.25, 0.5, 0.25], (plain[1] + 3 * plain[2]) / 4])
    found = expectation_maximization(table, counts, smoothing=True, max_iterations=1)
    assert found.probabilities == pytest.approx(smooth)
    assert not found.converged


@pytest.mark.slow
def test_counts_of_batches_add_up():
    mechanism = nz.SquareWave(epsilon=1.0)
    reports = mechanism.privatize(np.random.default_rng(4).uniform(-1, 1, 10_000), rng=5)
    channel = BinnedChannel.of(mechanism, bins=32)
    counts = channel.count(reports[:3_000]) + channel.count(reports[3_000:])
    assert np.array_equal(counts, channel.count(reports))
    streamed = reconstruct(mechanism, counts=counts, bins=32)
    assert streamed.probabilities == pytest.approx(reconstruct(mechanism, reports, bins=32).probabilities)


def wasserstein(p, q, width):
    return np.abs(np.cumsum(p) - np.cumsum(q)).sum() * width


@pytest.mark.long
@pytest.mark.parametrize("epsilon", [1.0, 2.0])
def test_square_wave_with_smoothing_recovers_a_known_distribution(epsilon):
    """Beta(2, 5) on [-1, 1], 20,000 users: far nearer than the histogram of the reports, and as near as other runs.

    The threshold is mean plus six deviations of six runs with seeds of their own.
    """
    mechanism = nz.SquareWave(epsilon=epsilon)
    edges = np.linspace(-1, 1, 65)
    middle = (edges[:-1] + edges[1:]) / 2

    def run(seed):
        x = 2 * np.random.default_rng(seed).beta(2, 5, 20_000) - 1
        truth = np.histogram(x, edges)[0] / x.size
        reports = mechanism.privatize(x, rng=seed)
        found = reconstruct(mechanism, reports)
        assert found.values == pytest.approx(middle)
        naive = np.histogram(np.clip(reports, -1, 1), edges)[0] / x.size
        return wasserstein(found.probabilities, truth, 2 / 64), wasserstein(naive, truth, 2 / 64)

    others = np.asarray([run(seed)[0] for seed in range(100, 106)])
    found, naive = run(1)
    assert found < others.mean() + 6 * others.std()
    assert found < 0.06
    assert naive > 4 * found


@pytest.mark.slow
@pytest.mark.parametrize("name", ["piecewise", "hybrid", "laplace", "gaussian", "discrete-laplace"])
def test_other_mechanisms_recover_the_mean_and_the_side(name):
    mechanism = nz.CATALOGUE[name].example(4.0)
    rng = np.random.default_rng(6)
    x = np.where(rng.random(20_000) < 0.7, -0.5, 0.75)
    found = reconstruct(mechanism, mechanism.privatize(x, rng=7), bins=32)
    assert found.values @ found.probabilities == pytest.approx(x.mean(), abs=0.05)
    assert found.probabilities[found.values > 0.1].sum() == pytest.approx(0.3, abs=0.08)


@pytest.mark.parametrize("name", ["grr", "hadamard", "oue", "sue", "olh", "subset-selection", "histogram"])
def test_every_categorical_mechanism(name):
    """EM is at most a little worse than the projected estimate for 8 categories, one of them absent."""
    domain = nz.Categorical(8)
    mechanism = type(nz.CATALOGUE[name].example(2.0))(epsilon=2.0, domain=domain)
    truth = np.array([0.4, 0.2, 0.1, 0.1, 0.1, 0.05, 0.05, 0.0])
    reports = mechanism.privatize(np.random.default_rng(8).choice(8, 20_000, p=truth), rng=9)
    found = reconstruct(mechanism, reports)
    assert found.probabilities.sum() == pytest.approx(1)
    assert np.array_equal(found.values, np.arange(8))
    raw = nz.enhance(mechanism.aggregate(reports).estimate(), "simplex").value
    assert np.abs(found.probabilities - truth).sum() < 1.5 * np.abs(raw - truth).sum() + 0.02


@pytest.mark.slow
def test_bad_input():
    m = nz.SquareWave(epsilon=1.0)
    with pytest.raises(ValueError, match="either reports or counts"):
        reconstruct(m)
    with pytest.raises(ValueError, match=r"Report 7.5 is outside the support of square-wave"):
        reconstruct(m, np.array([0.0, 7.5]))
    with pytest.raises(ValueError, match=r"at least one|empty"):
        reconstruct(m, np.array([]))
    with pytest.raises(ValueError, match=r"all zero"):
        expectation_maximization(np.eye(2), [0, 0])
    with pytest.raises(ValueError, match=r"counts >= 0 and finite, got nan"):
        expectation_maximization(np.eye(2), [1.0, np.nan])
    with pytest.raises(ValueError, match=r"one count for each report bin, got \(2, 3\) and \(3,\)"):
        expectation_maximization(np.ones((2, 3)), [1, 2, 3])
    with pytest.raises(ValueError, match=r"Report bin 1 was counted 4 times, but no input leads there"):
        expectation_maximization([[1.0, 1.0], [0.0, 0.0]], [1, 4])
    with pytest.raises(ValueError, match="tolerance"):
        expectation_maximization(np.eye(2), [1, 1], tolerance=0.0)
    with pytest.raises(TypeError, match="one number or one category"):
        reconstruct(nz.Sampled("piecewise", epsilon=1.0, dims=3), counts=[1, 2])
    with pytest.raises(ValueError, match=r"at most 50000000 entries.*fewer"):
        reconstruct(nz.DiscreteLaplace(epsilon=30.0, domain=nz.Grid(0, 9_000)), counts=[1])
    with pytest.raises(TypeError, match="vectors and cannot be counted"):
        reconstruct(nz.UnaryEncoding(epsilon=1.0, domain=nz.Categorical(4)), counts=[1, 2])


@pytest.mark.long
@pytest.mark.parametrize("name", ["ems", "em", "grr", "oue"])
def test_errors_and_gain_of_a_reconstruction_are_honest(name):
    """Stated squared errors against obtained ones over 10 collections, and the gain against the plain estimate's."""
    stated, obtained, promised, gained = [], [], [], []
    for seed in range(10):
        rng = np.random.default_rng([seed, 5])
        if name in ("ems", "em"):
            shares = np.histogram(rng.beta(2, 5, 400_000), 8, (0, 1))[0] / 4e5
            m = nz.SquareWave(epsilon=2.0, domain=nz.Interval(0, 1))
            x = rng.beta(2, 5, 8_000)
            found = reconstruct(m, m.privatize(x, rng=rng), bins=8, smoothing=name == "ems")
        else:
            shares = np.array([0.5, 0.25, 0.15, 0.06, 0.03, 0.01])
            m = nz.CATALOGUE[name](epsilon=1.0, domain=nz.Categorical(6))
            reports = m.privatize(rng.choice(6, 4_000, p=shares), rng=rng)
            found = reconstruct(m, reports)
        answer = found.estimate(rng=seed, resamples=12)
        assert answer.kind == "frequency"
        assert answer.value.sum() == pytest.approx(1)
        assert answer.method == ("ems" if name == "ems" else "em")
        stated.append(np.mean(answer.std_error**2))
        obtained.append(np.mean((answer.value - shares) ** 2))
        promised.append(answer.expected_gain)
        if name in ("grr", "oue"):
            plain = m.aggregate(reports).estimate()
            gained.append(np.mean((plain.value - shares) ** 2) - obtained[-1])
    assert 0.5 < np.mean(stated) / np.mean(obtained) < 2
    if name in ("ems", "em"):  # with few wide bins smoothing costs more than it brings, and says so
        assert (np.mean(promised) > 0) == (name == "em")
    if gained:
        noise = 4.9 * np.std(gained) / np.sqrt(10)
        assert np.mean(promised) == pytest.approx(np.mean(gained), abs=noise)


def test_a_reconstruction_without_reports_has_no_errors():
    bare = Reconstruction(np.ones(2) / 2, 0.0, 1, converged=True)
    with pytest.raises(ValueError, match="holds no reports"):
        bare.estimate()
    found = expectation_maximization([[0.75, 0.25], [0.25, 0.75]], [600, 400])
    with pytest.raises(ValueError, match="resamples=1"):
        found.estimate(resamples=1)


def test_the_variance_of_the_inverse_is_that_of_the_linear_rule():
    table, counts = np.array([[0.75, 0.25], [0.25, 0.75]]), np.array([600.0, 400.0])
    variance = expectation_maximization(table, counts).source.inverted
    assert variance == pytest.approx(0.6 * 0.4 / 1000 / 0.5**2)  # x = (share - 1/4) / (1/2)


@pytest.mark.slow
@pytest.mark.parametrize(("share", "strongest"), [(0.0, True), (0.5, False)])
def test_smoothing_ends_where_the_reports_speak_against_it(share, strongest):
    """Half of all people at one number are not smeared over its neighbours; a smooth population stays smooth."""
    m = nz.Piecewise(epsilon=2.0, domain=nz.Interval(0, 1))
    rng = np.random.default_rng(3)
    people = np.where(rng.random(20_000) < share, 0.4, rng.beta(2, 3, 20_000))
    channel = BinnedChannel.of(m, bins=64)
    counts = channel.count(m.privatize(people, rng=rng)).astype(float)
    found = smoothed_as_needed(channel.matrix, counts)
    always = expectation_maximization(channel.matrix, counts, smoothing=True)
    assert np.array_equal(found.probabilities, always.probabilities) == strongest
    truth = np.histogram(people, channel.inputs)[0] / people.size
    near, far = (np.abs(np.cumsum(one.probabilities - truth)).mean() for one in (found, always))
    assert near <= (1.0 if strongest else 0.6) * far


def test_a_weight_of_neighbours():
    table, counts = np.eye(4) * 0.6 + 0.1, [700.0, 100.0, 100.0, 100.0]
    quarter = expectation_maximization(table, counts, smoothing=0.25).probabilities
    assert np.array_equal(quarter, expectation_maximization(table, counts, smoothing=True).probabilities)
    assert expectation_maximization(table, counts, smoothing=2.0**-6).probabilities[0] > quarter[0]
    with pytest.raises(ValueError, match="a weight in"):
        expectation_maximization(table, counts, smoothing=0.5)


def test_what_is_certain_has_converged_at_once() -> None:
    """The likelihood of what must be is one, whose log is zero and stays so: no share of it is smaller."""
    found = expectation_maximization([[1.0]], [5.0], max_iterations=9)
    assert (found.log_likelihood, found.iterations, found.converged) == (0.0, 1, True)
