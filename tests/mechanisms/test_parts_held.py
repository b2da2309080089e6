"""What the parts of mechanisms for arrays compute on their own, digit by digit, on inputs that mechanisms rarely meet.

Mechanisms keep solved tables, choose between ways, and enter a branch for edges only by chance; here each part is asked
directly. What is kept was found right by the tests of its mechanism. python -m tests.mechanisms.test_parts_held writes
anew.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from tests.held import Held
from tests.mechanisms.arrays import brief, facts, summary

import noisette as nz
from noisette.mechanisms.geometric import spherical
from noisette.mechanisms.graded import _levels, _programme, estimation
from noisette.mechanisms.tensor import _tensors
from noisette.mechanisms.tensor.gaussian import _farthest, _noise, _signs, _sketches, calibration, jl, neighbours
from noisette.mechanisms.tensor.gaussian.modes import Mode, dense, multiply
from noisette.mechanisms.tensor.matrix import optimum
from noisette.mechanisms.tensor.retain import calibration as retaining
from noisette.mechanisms.tensor.retain import cells, laws, published
from noisette.mechanisms.vector import _vectors, sampled
from noisette.mechanisms.vector.caps import laws as caps
from noisette.mechanisms.vector.caps import masses
from noisette.mechanisms.vector.projections import codebook, hadamard

HELD = Held(__file__)


def covariance(size: int, turn: float = 0.0) -> np.ndarray:
    """Return a positive definite matrix with entries of either sign."""
    root = np.sin(1.7 * np.arange(size * size) + turn).reshape(size, size) + 0.3 * np.eye(size)
    return np.asarray(root @ root.T + 0.05 * np.eye(size))


# Signs, neighbours and the search for the farthest ones.


def reached(found: Any) -> list[float]:
    """Return the numbers of a reach; its signs may be flipped as a whole."""
    return [found.upper, found.lower, found.weight, float(np.sum(found.signs) ** 2)]


def signs() -> list[Any]:
    told: list[Any] = []
    for size in (1, 2, 3, 5, 9, 16, 17, 24):
        matrix = covariance(size)
        told.append(reached(_signs.largest_form(matrix)))
        told.append([_signs.dominating(matrix, np.diagonal(matrix).copy(), given) for given in (None, 0.2, 3.0)])
        told.append([_signs._room(size), summary(_signs.climbed(np.ones(size), [matrix]))])
    for sizes in ((5, 3), (3, 5), (5, 5), (4, 4, 4), (3, 3, 2), (2, 2, 6), (17, 3), (70, 70)):
        matrices = [covariance(size, turn) for turn, size in enumerate(sizes)]
        told.append(reached(_signs.largest_joint_form(matrices, [_signs.largest_form(one) for one in matrices])))
    told.append([next(_signs._random_signs(shape)).reshape(-1)[:9] for shape in ((3, 3), (70, 70))])
    told.append([sum(1 for _ in _signs._random_signs(shape)) for shape in ((3, 3), (20, 20), (70, 70), (200, 200))])
    return told


DOMAINS = (
    nz.TensorDomain((2, 3), -1, 2),
    nz.TensorDomain((4, 5), 0, 1),
    nz.TensorDomain((3, 3, 2), 0, 0.5),
    nz.TensorBall((4, 3), 2.0),
    nz.TensorBall((4, 3), 2.0, mode=0),
    nz.TensorBall((3, 4), 0.5, mode=1),
)


def differing(number: int) -> list[Any]:
    """Return how far neighbours of a domain are apart, by bounds and by search, for every relation it has."""
    domain = DOMAINS[number]
    forms = ["any-pair", "slice:0", "slice:1", "fibre:0", "fibre:1", "element", "l2:0.7", "box:0.3"]
    told: list[Any] = []
    for given in (None, "diagonal", "full"):
        covariances = [
            None if given is None else np.arange(1.0, size + 1) if given == "diagonal" else covariance(size, turn)
            for turn, size in enumerate(domain.dims)
        ]
        modes = [
            Mode.read(size, one, place) for place, (size, one) in enumerate(zip(domain.dims, covariances, strict=True))
        ]
        for form in forms:
            try:
                own = neighbours.Neighbours.read(form, domain)
            except (ValueError, TypeError) as error:
                told.append(str(error)[:60])
                continue
            told.append([form, own.free, own.entries, own.l2, own.white(modes)])
            told.append(float(np.linalg.norm(own.worst(modes))))
            white = [None if mode.covariance is None else mode.whitener for mode in modes]
            if isinstance(domain, nz.TensorDomain) or form in ("any-pair", "slice:0", "l2:0.7"):
                gap, length = _farthest.farthest(domain, form, white)
                told.append([length, float(np.linalg.norm(gap))])
    return told


def places() -> list[Any]:
    told: list[Any] = []
    for dims in ((2, 3), (9, 9), (64, 2), (5, 13, 2)):
        domain = nz.TensorDomain(dims)
        for form in ("any-pair", "slice:0", "slice:1", "fibre:0", "element"):
            found = _farthest._places(domain, form, np.random.default_rng(3))
            told.append([form, len(found), sorted(str(place) for place in found)[:2]])
    symmetric = _farthest.farthest(nz.TensorDomain((3, 3)), "any-pair", [covariance(3), covariance(3)], ((0, 1),))
    return [*told, symmetric[1]]


# Modes and noise.


def modes_of(sizes: tuple[int, ...], given: str) -> list[Mode]:
    made: dict[str, Callable[[int, int], Any]] = {
        "none": lambda size, turn: None,
        "diagonal": lambda size, turn: np.linspace(0.5, 2, size) if size > 1 else [0.7],
        "full": covariance,
    }
    return [Mode.read(size, made[given](size, turn), turn) for turn, size in enumerate(sizes)]


def moved() -> list[Any]:
    told: list[Any] = []
    for given in ("none", "diagonal", "full"):
        for mode in modes_of((1, 3, 4), given):
            told.append([facts(mode) | {"reach": reached(mode.reach)}, brief(mode.spec())])
            told += [mode.between(0, other, 2) for other in (0, 1)]
            told += [mode.between(1, 0, 3), mode.weighted(None), mode.weighted(np.ones((2, mode.size)))]
        for sizes in ((3, 4), (4, 1), (2, 3, 2), (6,), (70, 90), (300,)):
            own = modes_of(sizes, given)
            values = np.cos(np.arange(2.0 * np.prod(sizes))).reshape(2, *sizes)
            changed = values.copy()
            multiply(changed, [None if mode.covariance is None else np.asfortranarray(mode.root) for mode in own])
            told.append(summary(changed))
        values = np.cos(np.arange(24.0)).reshape(2, 3, 4)
        told.append(summary(dense(values, [np.ones((2, 3)), None])))
        told.append(summary(dense(values, [None, covariance(4)[:3]])))
        told.append(summary(_noise.symmetric_variances(modes_of((3, 3, 2), given), ((0, 1),))))
    return told


def released() -> list[Any]:
    """Return what is released slice by slice, with noise that is all ones: sizes of either order, some at a time."""

    def add(values: np.ndarray) -> None:
        values += 1.0

    told: list[Any] = []
    for sizes in ((3, 4), (5, 2, 3), (7,), (2, 9)):
        for given in ("none", "diagonal", "full"):
            source = np.sin(np.arange(float(np.prod(sizes)))).reshape(sizes)
            target = np.zeros_like(source)
            own = [None if mode.covariance is None else mode for mode in modes_of(sizes, given)]
            _noise.release_slices(source, target, own, lambda part: part - 0.25, add)
            told.append(summary(target))
    told += [
        list(map(str, _noise._blocks(*sizes, whole=whole)))
        for sizes in ((3, 2, 5), (40, 2**12, 9))
        for whole in (True, False)
    ]
    return told


def regrouped() -> list[Any]:
    told: list[Any] = []
    for sizes, dims, given in (
        ((2, 3), (6, 1), "none"),
        ((2, 3), (6, 1, 1), "diagonal"),
        ((6,), (2, 3), "none"),
        ((2, 3, 4), (6, 4), "full"),
        ((2, 3, 4), (2, 12), "diagonal"),
        ((1, 6), (6,), "none"),
        ((4, 3), (2, 6), "none"),
        ((6,), (2, 3), "full"),
        ((2, 3), (6, 2), "none"),
        ((2, 3), (6, -1, -1), "none"),
    ):
        try:
            found = _tensors.regroup(modes_of(sizes, given), dims)
            told.append([None if one is None else summary(one) for one in found])
        except ValueError as error:
            told.append(str(error)[:80])
    for values in (np.arange(18.0).reshape(2, 3, 3), np.arange(9.0).reshape(3, 3)):
        mean = values.copy()
        _tensors.average(mean, ((0, 1),), 2)
        told.append(mean)
    told.append(
        [list(turns) for turns in (_tensors.permutations_of(((0, 2), (1, 3)), 4), _tensors.permutations_of((), 2))]
    )
    return told


def calibrated() -> list[Any]:
    told: list[Any] = [[calibration.zeta(delta, size) for delta in (1e-9, 0.1) for size in (1, 20)]]
    told.append([calibration.tvg_bound(e, 1e-5, size, 2.0) for e in (0.3, 3.0) for size in (1, 20)])
    told.append([calibration.mvg_bound(e, 1e-5, 3, 7, 2.0, 5.0) for e in (0.3, 3.0)])
    told.append([summary(calibration._raised(np.asarray(w))) for w in ([1.0, 2.0], [0.0, 1.0], [1e-20, 1.0, 3.0])])
    return told


# Sketches.


def sketched() -> list[Any]:
    told: list[Any] = []
    for count, leverage in ((1, 0.3), (2, 0.9), (7, 0.05), (40, 0.01), (901, 1e-3)):
        for epsilon in (0.01, 1.0, 9.0):
            told.append([jl.jl_delta(count, leverage, epsilon), float(jl.delta_above(count, leverage, epsilon))])
    told += [
        [float(part) for part in jl._tails(count, place)]
        for count in (1, 2, 3, 8, 55)
        for place in map(jl_number, (0.01, 1.0, 7.9, 8.1, 300.0))
    ]
    told += [jl.largest_leverage(count, epsilon, delta) for count, epsilon, delta in ((1, 0.5, 1e-3), (30, 2.0, 1e-9))]
    for dims, epsilon, number in (((4, 2), 1.0, 3), ((3, 4), 0.5, 2), ((30, 3), 4.0, None)):
        made = nz.JohnsonLindenstrauss(nz.TensorBall(dims, 2.0, mode=0), epsilon, 1e-4, projections=number)
        rows = 2 * np.eye(*dims) * np.linspace(0.2, 1, dims[1])
        told.append(
            [brief(made.moments(rows)), made._usual_projections, brief(made.log_prob(made.witnesses()[1], rows))]
        )
        told.append([summary(made._along(np.asarray([0.5, 3.0]))), brief(made.readout), made._whole_ridge])
        told.append(_sketches._places(dims[1], made._count))
    told.append(jl.rss([[2.0, 0.5], [0.5, 1.0]], [[1.0, 0.1], [0.1, 1.0]]))
    return told


def jl_number(value: float) -> Any:
    import mpmath

    return mpmath.mpf(value)


# Records that are kept or covered by noise.


def retained() -> list[Any]:
    told: list[Any] = [[laws.chance(odds) for odds in (-800.0, -3.0, -1e-9, 0.0, 0.4, 30.0, 800.0)]]
    away = np.asarray([-4.0, -1.0, 0.0, 2.0, 9.0])
    shares = np.asarray([0.0, 1e-9, 0.3, 0.999])
    for noise in (
        laws.RoundedLaplace(0.7),
        laws.RoundedGaussian(1.3),
        published.RealLaplace(0.7),
        published.RealGaussian(1.3),
    ):
        told.append([noise.absolute, noise.log_mass(away), noise.sample(np.random.default_rng(1), 5)])
        told.append(summary(cells.spiked(noise, away, np.asarray([0.3]))))
    for steps in (1, 3):
        law = laws.KeptLaplace(0.4, steps)
        told.append([facts(law), law.epsilon(shares), [law.largest_kept(e) for e in (0.1, 1.3, 9.0, 40.0)]])
        told.append(law.renyi(np.asarray([1.5, 2.0, 30.0]), np.asarray([0.3])))
    for sigma, steps in ((0.6, 1), (5.0, 3), (30.0, 1)):
        normal = laws.KeptGaussian(sigma, steps)
        told.append([normal.delta(e, p) for e in (0.01, 0.1, 1.0, 6.0) for p in (0.0, 1e-4, 0.3)])
        told.append([normal.largest_kept(e, d) for e in (0.01, 0.5, 6.0) for d in (1e-6, 1e-3, 0.1)])
        told.append([normal._parts(1.0), normal.renyi(np.asarray([1.5, 2.0, 30.0]), np.asarray([0.3]))])
    told.append([laws._spike(shares, 0.2), retaining.group(None, 4), retaining.group(np.asarray([0.5, 0.5, 0.1]), 3)])
    for noise in ("laplace", "gaussian"):
        for retention in ("algorithm-1", "proof"):
            for rounded in (False, True):
                told.append(
                    str(published.published_law(noise, retention, epsilon=2.0, levels=4, size=2, rounded=rounded))
                )
    return told


def strategies() -> list[Any]:
    told: list[Any] = []
    for root in (np.tri(5), np.eye(3), np.asarray([[1.0, 1.0, 0.0, 0.0], [0.0, 1.0, 1.0, 0.0]]), covariance(4)):
        for gap in (1e-2, 1e-6):
            found = optimum.optimum(root, gap=gap)
            told.append([found.error, found.gap < gap, found.bound, float(np.square(found.strategy).sum())])
    told += [summary(optimum.symmetric(covariance(3))), optimum.named_optimum("prefix", 6).error]
    for dims, workload, options in (
        ((6,), "prefix", {}),
        ((3, 4), ("prefix", "identity"), {"relation": "replace"}),
        ((3, 4), ("range", "total"), {"strategy": "identity"}),
        ((2, 3, 2), "marginal-2", {}),
        ((2, 3, 2), "marginal-1", {"relation": "replace"}),
    ):
        try:
            made = nz.MatrixMechanism(1.3, 1e-5, domain=nz.TensorDomain(dims, 0, 9), workload=workload, **options)
        except (ValueError, TypeError) as error:
            told.append(str(error)[:60])
            continue
        x = np.arange(float(np.prod(dims))).reshape(dims) % 10
        own = made._strategy
        told.append([facts(own), own.answer_variances(), own.total_variance(), own.cell_variances(), own.slip(9.0)])
        told += [own.ask(x), own.reconstruct(own.ask(x)), own.answer(x), own.rank, own.bound, own.shape]
        told += [
            [own.change(replaced=replaced)[0] for replaced in (False, True)],
            made.answers(x) if hasattr(made, "answers") else None,
        ]
    return told


# Caps, codebooks and rotations.


def capped() -> list[Any]:
    told: list[Any] = []
    for projection in (
        caps.SphereProjection(2),
        caps.SphereProjection(3),
        caps.SphereProjection(40),
        caps.NormalProjection(),
    ):
        told.append(facts(projection))
        for gamma in (-0.3, 0.0, 0.2, 0.6):
            told.append([projection.log_mass(gamma), projection.log_part(gamma), projection.base(0.4)])
            told.append([float(part) for part in projection.mass_within(gamma)])
            told.append([[summary(part) for part in projection.nodes(gamma, above)] for above in (True, False)])
            told.append([str(projection.proposal(gamma))[:80], *facts(projection.proposal(gamma)).values()])
        told.append(projection.cubed(np.asarray([-0.5, 0.0, 0.4]), np.asarray([1.0, 2.0, 0.3])))
        for epsilon in (0.1, 2.0, 12.0):
            cap = caps.Cap.build(projection, epsilon)
            told.append([{name: one for name, one in facts(cap).items() if name != "third"}, cap.third(0.3)])
    told.append([summary(part) for part in caps.panels(-0.4, 0.9, 5)])
    told.append(
        [
            [float(part) for part in masses.sphere_mass(7, gamma, caps.SphereProjection(7).log_mass(gamma))]
            for gamma in (0.1, 0.9)
        ]
    )
    told.append([summary(_vectors.log_half_beta(a)) for a in (0.5, 3.0, 2000.0)])
    return told


def listed() -> list[Any]:
    told: list[Any] = [codebook.top_sums(size, near) for size, near in ((2, 1), (16, 1), (16, 15), (1024, 40))]
    told += [summary(codebook.quantiles()), [codebook.lattice(mean) for mean in (0.3, 0.5, 1.0, 4.1)]]
    for bits, epsilon in ((1, 0.3), (3, 2.0), (6, 6.0)):
        made = codebook.Codebook.build(5, bits, epsilon)
        told.append([made.size, made.near, made.own, made.other, facts(made)])
        seeds, directions = np.arange(9) * 10**9, np.eye(5)[np.arange(9) % 5]
        told.append([made.nearest(7, directions[0])[:9], made.draw(seeds, directions, np.random.default_rng(2))])
        told.append(summary(made.words(seeds[:3], np.asarray([0, 1, 1]))))
    return told


def rotated() -> list[Any]:
    told: list[Any] = [hadamard.hashed(seed, np.arange(5)) for seed in (0, 7, 2**40)]
    for dims, rows, width in ((3, 2, None), (5, 16, None), (70, 64, None)):
        made = hadamard.HadamardRows(dims, rows) if width is None else None
        told.append(facts(made))
        vectors = np.cos(np.arange(2.0 * dims)).reshape(2, dims)
        spectra = made.spectrum(vectors)
        told += [summary(spectra), summary(made.back(spectra)), summary(made.chosen(np.arange(4) * 10**6))]
        told.append(summary(made.directions(spectra, np.asarray([3, 4]))))
    return told


def chosen() -> list[Any]:
    told: list[Any] = []
    for dims, count in ((5, 5), (9, 1), (9, 4), (9, 5), (40, 8), (40, 9), (400, 6)):
        told.append(sampled.choose(np.random.default_rng(5), 6, dims, count))
    told.append([sampled.least_cost(30, lambda m: (m - best) ** 2 + 0.1 * (m % 2)) for best in (1, 4, 9, 40)])  # noqa: B023
    told.append(
        [
            sampled.least_cost(30, dict(zip(range(1, 31), [5, 6, 6, bump, 1, *[9] * 25], strict=True)).__getitem__)
            for bump in (6, 4)
        ]
    )
    return told


# Levels and the linear programme.


def solved() -> list[Any]:
    points, levels = np.asarray([-1.0, -0.4, 0.1, 0.5, 1.0]), np.asarray([0, 0, 1, 1, 2])
    matrix = np.minimum.outer([1.0, 0.5, 2.0], [1.0, 0.5, 2.0])
    told: list[Any] = [_programme._first_outputs(least) for least in (0.1, 1.0, 9.0)]
    told += [
        summary(_programme._rays(levels, matrix)),
        [[_programme._implied(matrix, i, j) for j in range(3)] for i in range(3)],
    ]
    steep = np.asarray([[1.0, 0.2, 9.0], [0.2, 1.0, 0.3], [9.0, 0.3, 1.0]])
    told += [
        summary(_programme._rays(levels, steep)),
        [[_programme._implied(steep, i, j) for j in range(3)] for i in range(3)],
    ]
    told.append(_programme._repair(np.asarray([[0.1, 0.3], [0.0, 0.2], [0.5, 0.05]]), 2))
    for weights in (None, np.full(5, 0.2)):
        found = _programme.best(points, levels, matrix, weights)
        told.append([found.value, found.bound, found.outputs.size, summary(found.outputs)])
    return told


def counted() -> list[Any]:
    outputs, chances = np.asarray([-2.0, 0.0, 1.0, 3.0]), np.asarray([[0.4, 0.3, 0.2, 0.1], [0.1, 0.2, 0.3, 0.4]])
    told: list[Any] = []
    laws_of = _levels.Laws
    told.append(sorted(vars(laws_of)))
    for edges in ((-1.0, 0.0, 0.4, 1.0), (0, 20, 70, 100), (5, 6)):
        own = _levels.Levels.build(edges)
        told.append(
            [
                own.size,
                str(own.domain),
                own.ends,
                own.of(np.asarray([edges[0], edges[1], edges[-1], (edges[0] + edges[1]) / 2])),
            ]
        )
        told.append(own.stretched(nz.Interval(0, 1)))
    told.append(_levels.largest_scale((0.3, 1.0), lambda scaled: scaled[1] < 1.7))
    told.append([_levels.within(np.eye(2).tolist(), np.ones((2, 2)).tolist()), summary(outputs), summary(chances)])
    return told


def mixed() -> list[Any]:
    told: list[Any] = []
    chances = np.asarray([[0.6, 0.1, 0.2], [0.3, 0.2, 0.2], [0.1, 0.7, 0.6]])
    for counts in ([50, 30, 20], [0, 0, 9], [300, 200, 500]):
        told.append([summary(part) for part in estimation.mixture(chances, np.asarray(counts))])
    told += [estimation._slope(mean) for mean in (0.01, 0.3, 0.5, 0.500001, 0.9)]
    told += [estimation._part(np.asarray([0.0, 0.3, 1.0]), np.asarray(slope)) for slope in (-9.0, -1e-9, 0.0, 2.0)]
    told.append(estimation.convert_signs(np.asarray([10, 40]), 0.8, 0.6, rng=3))
    return told


# Angles.


def angled() -> list[Any]:
    told: list[Any] = []
    for dims in (2, 3, 5, 70):
        x = np.sin(np.arange(1.0, dims + 1))
        for own in (x, -x, np.where(np.arange(dims) % 3, x, 0.0), 1e-200 * x, np.eye(dims)[-1], -np.eye(dims)[0]):
            magnitude, angles = spherical.to_spherical(own)
            told.append([magnitude, summary(angles), summary(spherical.from_spherical(magnitude, angles))])
    turned = np.asarray([0.3, -0.7, 4.0, 7.0])
    told += [
        summary(spherical.from_spherical(2.0, turned)),
        summary(spherical._reduced(turned)),
        list(map(str, spherical._blocks(10, 4))),
    ]
    return told


STORIES: dict[str, Callable[[], Any]] = {
    "signs": signs,
    **{f"differing in {domain}": partial(differing, number) for number, domain in enumerate(DOMAINS)},
    "places": places,
    "moved": moved,
    "released": released,
    "regrouped": regrouped,
    "calibrated": calibrated,
    "sketched": sketched,
    "retained": retained,
    "strategies": strategies,
    "capped": capped,
    "listed": listed,
    "rotated": rotated,
    "chosen": chosen,
    "solved": solved,
    "counted": counted,
    "mixed": mixed,
    "angled": angled,
}


WEIGHTY = {"capped", "solved"}


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] if n in WEIGHTY else []) for n in STORIES])
def test_digits_are_the_ones_that_were_kept(name: str) -> None:
    HELD.check(name, STORIES[name]())


if __name__ == "__main__":
    HELD.write({name: story() for name, story in STORIES.items()})
