"""Texts that nobody listed: the code, the law, the search and what was predicted of it."""

from __future__ import annotations

import json
import math
import string
import unicodedata
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import stats

import noisette as nz
from noisette.domains.texts import ENDED, OPEN
from noisette.mechanisms.categorical.texts import search as searching
from noisette.mechanisms.categorical.texts.prefixes import PrefixHash
from noisette.mechanisms.categorical.texts.search import check_level, extensions, search
from noisette.prediction.texts import TextPrediction

LETTERS = "abcdefgh"


def population(size: int, longest: int, seed: int = 1) -> tuple[list[str], np.ndarray]:
    rng = np.random.default_rng(seed)
    drawn = ("".join(rng.choice(list(LETTERS), rng.integers(1, longest + 1))) for _ in range(2 * size))
    words = list(dict.fromkeys(drawn))[:size]
    shares = 1 / np.arange(1, len(words) + 1) ** 1.2
    return words, shares / shares.sum()


# the public code


def test_every_valid_text_has_a_code_and_comes_back() -> None:
    rng = np.random.default_rng(3)
    points = rng.choice(
        [*range(0x20, 0x7F), *range(0xA0, 0x2000), *range(0x3000, 0xD800), *range(0x1F300, 0x1F600)], 4000
    )
    texts = [unicodedata.normalize("NFC", "".join(map(chr, part))) for part in points.reshape(-1, 4)]
    domain = nz.Texts(32)
    texts = [text for text in texts if domain.fault(text) is None]
    assert len(texts) > 900
    codes = domain.symbols(texts)
    for text, code in zip(texts, codes, strict=True):
        assert bytes(code).rstrip(b"\0") == text.encode()
        assert domain.text(code) == text
        state = OPEN
        for symbol in code.tolist():  # the grammar that the search extends prefixes by knows the text
            state = int(domain.grammar[state, symbol])
            assert state >= 0
        assert state in (OPEN, ENDED)


@pytest.mark.long
def test_the_grammar_is_utf_8_without_controls() -> None:
    """Python's own decoder is the other computation, for all pairs of bytes."""
    grammar = nz.Texts(4).grammar
    for first in range(1, 256):
        for second in range(256):
            state = int(grammar[OPEN, first])
            state = int(grammar[state, second]) if state >= 0 else -1
            raw = bytes([first, second]).rstrip(b"\0")
            tails = [byte * times for byte in (b"\x80", b"\xbf") for times in range(4)]
            decoded = [_decoded(raw + tail) for tail in (tails if second else tails[:1])]
            possible = any(text and not any(unicodedata.category(one) == "Cc" for one in text) for text in decoded)
            assert (state >= 0) == possible, (hex(first), hex(second))


def _decoded(raw: bytes) -> str | None:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty. Give an empty answer"),
        ("a\tb", r"control character '\\t'. Remove it"),
        ("\x85", "control character"),
        ("a\u2029", "control character"),
        ("nuts\u202egpj.exe", r"control character '\\u202e'. Remove it"),
        ("\u2066a\u2069", r"control character '\\u2066'"),
        ("x" * 25, "25 bytes of UTF-8, more than 24. Shorten it"),
        ("漢" * 9, "27 bytes of UTF-8, more than 24"),
        ("\ud800", "half of a character, which UTF-8 cannot write"),
        (b"abc", r"is of type bytes. Decode it first"),
        (None, "is of type NoneType"),
        (3.5, "is of type float"),
    ],
)
def test_what_is_no_text_is_refused_with_the_remedy(text: object, words: str) -> None:
    domain = nz.Texts(24)
    assert not domain.contains(np.asarray([text], dtype=object))[0]
    with pytest.raises(ValueError, match=words) as error:
        domain.symbols(np.asarray(["fine", text], dtype=object))
    assert "as text 1:" in str(error.value)


def test_an_accent_typed_apart_is_the_same_text_and_nothing_else_is() -> None:
    domain = nz.Texts(24)
    apart = unicodedata.normalize("NFD", "élève")
    assert np.array_equal(*domain.symbols(["élève", apart]))
    assert not np.array_equal(*domain.symbols(["Paris", "paris"]))
    assert not np.array_equal(*domain.symbols(["paris ", "paris"]))


def test_marks_and_joiners_that_a_language_needs_stay() -> None:
    """The twin of the refusals: a family of emoji, Persian with a joint broken, Hebrew with a mark of its direction."""
    texts = ["\U0001f468\u200d\U0001f469", "می\u200cخواهم", "שלום\u200f"]
    domain = nz.Texts(32)
    assert [domain.text(code) for code in domain.symbols(texts)] == texts


def test_an_alphabet_shortens_the_code() -> None:
    domain = nz.Texts(24, alphabet=string.ascii_lowercase)
    assert (domain.symbols(["az"])[0, :3] == [1, 26, 0]).all()
    assert nz.Texts(24, alphabet="абвг").width == 12
    with pytest.raises(ValueError, match="'A' is not in the alphabet"):
        domain.symbols(["aA"])
    for bad in ("aa", "", "a\n", 5, "e\u0301"):
        with pytest.raises(ValueError, match="alphabet"):
            nz.Texts(24, alphabet=bad)
    for bad in (0, 33):
        with pytest.raises(ValueError, match="longest"):
            nz.Texts(bad)


# the law


def test_the_maps_are_pairwise_uniform() -> None:
    """Prefixes of one length collide under a share of the maps that is binomial about 1 / buckets."""
    maps = PrefixHash(2048, 8)
    symbols = nz.Texts(12).symbols(["noisette", "noisettf", "moisette", "almond", "a", "b", "zz", "é"])
    own = maps.bucket(np.arange(2048)[:, None], symbols[None], 12)
    limit = stats.norm.isf(1e-6 / 28 / 2) * math.sqrt(7 / 64 / 2048)
    for first in range(8):
        assert abs(np.bincount(own[:, first], minlength=8) / 2048 - 1 / 8).max() <= limit
        for second in range(first):
            assert abs((own[:, first] == own[:, second]).mean() - 1 / 8) <= limit
    short = maps.bucket(np.arange(2048)[:, None], symbols[None, :2], 7)
    assert np.array_equal(short[:, 0], short[:, 1])  # the first seven symbols are the same


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_the_budget_is_exact(epsilon: float) -> None:
    for domain in (nz.Texts(24), nz.Texts(2, alphabet="a"), nz.Texts(3, alphabet="漢字")):
        m = nz.PrefixExtending(epsilon, domain)
        assert nz.exact_epsilon(m) == pytest.approx(epsilon, rel=1e-9)
        assert nz.exact_epsilon(m) <= epsilon
        assert nz.from_spec(json.loads(json.dumps(m.spec()))) == m


def test_the_law_sums_to_one_and_is_randomised_response_of_a_bucket() -> None:
    m = nz.PrefixExtending.example(1.0)
    every = np.arange(m.support.size)
    for text in "abcd":
        assert np.exp(m.log_prob(every, text)).sum() == pytest.approx(1.0, abs=1e-12)
    ratio = np.exp(m.log_prob(every, "a") - m.log_prob(every, "b"))
    levels = {round(value, 9) for value in ratio.tolist()}
    assert levels <= {round(math.exp(s), 9) for s in (-1.0, 0.0, 1.0)}


def test_what_is_estimated_of_a_text_and_its_moments_by_the_maps() -> None:
    """Each bucket of each cell is a coin: with one chance where the cell's map sends the prefix there, else another."""
    mechanism = nz.PrefixExtending(1.5, domain=nz.Texts(3, alphabet="abcd"), seeds=5)
    target, moments = mechanism.target("cab"), mechanism.moments("cab")
    own, other = mechanism.p_own, (1 - mechanism.p_own) / (mechanism.buckets - 1)
    codes = mechanism.domain.symbols(["cab"])
    for cell in range(mechanism.cells):
        length, seed = mechanism.lengths[cell // 5], cell % 5
        bucket = sum(int(mechanism.hash.table(seed, place, codes[0, place])) for place in range(length))
        for one in range(mechanism.buckets):
            entry, hit = cell * mechanism.buckets + one, one == bucket % mechanism.buckets
            chance, gap = own if hit else other, own - other
            assert target[entry] == hit
            assert moments.bias[entry] == 0
            assert moments.variance[entry] == pytest.approx(chance * (1 - chance) / gap**2, rel=1e-9)
            third = chance * (1 - chance) * (chance**2 + (1 - chance) ** 2) / gap**3
            assert moments.third[entry] == pytest.approx(third, rel=1e-9)


def test_groups_and_sizes() -> None:
    assert nz.PrefixExtending(4.0, nz.Texts(24)).lengths == (*range(2, 25, 2), 24, 24)
    assert nz.PrefixExtending(4.0, nz.Texts(24, alphabet=string.ascii_lowercase)).lengths == (*range(3, 25, 3), 24, 24)
    assert nz.PrefixExtending(4.0, nz.Texts(3, alphabet=string.ascii_lowercase)).lengths == (3, 3, 3, 3)
    assert nz.PrefixExtending(4.0, nz.Texts(6, alphabet=string.digits)).lengths == (6, 6, 6, 6)  # 1.8 million codes
    assert not nz.PrefixExtending(4.0, nz.Texts(7, alphabet=string.digits)).at_once
    for epsilon in (0.1, 1.0, 4.0, 12.0):
        m = nz.PrefixExtending(epsilon, nz.Texts(32))
        assert m.seeds * m.buckets <= 1 << 16
        assert m.privatize("x", rng=1).dtype == np.int32


def test_reports_of_another_mechanism_are_refused() -> None:
    m = nz.PrefixExtending.example(1.0)
    with pytest.raises(ValueError, match="outside the support"):
        m.tally([m.support.size])
    with pytest.raises(ValueError, match="integers"):
        m.tally([0.5])
    with pytest.raises(TypeError, match="Texts"):
        nz.PrefixExtending(1.0, nz.Categorical(3))


# the search


def test_extensions_are_all_words_of_the_grammar() -> None:
    domain = nz.Texts(4, alphabet="abc")
    words, states = extensions(domain, OPEN, 1, 3)
    assert len(words) == 3 * 3 + 3 + 1  # two letters, one and the end, the end twice
    assert (states == ENDED).sum() == 4
    assert len(extensions(domain, OPEN, 0, 2)[0]) == 3 * 3 + 3  # no text is empty
    assert len(extensions(domain, ENDED, 1, 3)[0]) == 1
    any_text = nz.Texts(4)
    last, ends = extensions(any_text, OPEN, 2, 4)
    assert set(ends.tolist()) == {OPEN, ENDED}  # no character is cut at the end
    assert len(last) == len({bytes(word) for word in last})


@pytest.mark.slow
def test_the_support_is_counted_as_by_hand() -> None:
    """The compiled sums against a sum over all reports of one word."""
    m = nz.PrefixExtending(2.0, nz.Texts(2, alphabet="abc"))
    reports = m.privatize(np.repeat(["ab", "c", "bb"], [900, 500, 300]), rng=3)
    group = searching._Group(m, 2, m.tally(reports).total.reshape(4, m.seeds, m.buckets)[:2].sum(axis=0))
    best = searching._best(
        m.domain, searching._Prefixes(np.zeros((1, 0), np.uint8), np.zeros(1, np.int8)), group, group.excess, 12
    )
    assert len(best.symbols) == 12
    cells, buckets = np.divmod(reports.astype(np.int64), m.buckets)
    mine = cells // m.seeds < 2
    by_hand = {}
    for row in best.symbols:
        own = m.hash.bucket(cells[mine] % m.seeds, row[None], 2)
        by_hand[bytes(row)] = int((own == buckets[mine]).sum())
    assert list(by_hand.values()) == sorted(by_hand.values(), reverse=True)
    assert m.domain.text(best.symbols[0]) == "ab"


@pytest.mark.long
@pytest.mark.parametrize(("longest", "alphabet", "start"), [(6, None, 2), (9, "abc", 0), (4, "ab", 0), (5, LETTERS, 4)])
def test_few_reports_are_counted_as_many_are(longest: int, alphabet: str | None, start: int) -> None:
    """Both loops give every word the same support, but for what all words have in common."""
    m = nz.PrefixExtending(3.0, nz.Texts(longest, alphabet=alphabet))
    rng = np.random.default_rng(longest)
    length = next(one for one in m.lengths if one > start)
    counts = np.bincount(rng.integers(0, m.seeds * m.buckets, 700), minlength=m.seeds * m.buckets)
    group = searching._Group(m, length, counts.reshape(m.seeds, m.buckets))
    words = extensions(m.domain, OPEN, start, length)[0]
    offsets = rng.integers(0, m.buckets, (m.seeds, 3))
    found = []
    for excess in (group.excess, group.excess.copy()):  # reports are gone through where nothing was taken off
        found.append(np.zeros((3, len(words)), dtype=np.float32))
        searching._add_support(group, (m.domain, OPEN, start, length), excess, offsets, found[-1])
    assert found[0].sum() == pytest.approx(700 * 3 * len(words) / m.buckets, rel=0.1)
    assert found[0] - 700 / m.buckets == pytest.approx(found[1], abs=1e-3)


@pytest.mark.long
def test_what_is_frequent_is_found_and_nothing_else_is_shown() -> None:
    rng = np.random.default_rng(5)
    shares = {"münchen": 0.3, "東京": 0.2, "paris": 0.15, "paris-nord": 0.1}
    rare = [f"town{number}" for number in range(5000)]
    chosen = rng.choice(len(shares) + 1, 60_000, p=[*shares.values(), 0.25])
    names = np.asarray([*shares, ""])[chosen].astype(object)
    names[names == ""] = rng.choice(rare, int((names == "").sum()))
    m = nz.PrefixExtending(4.0, nz.Texts(16))
    found = search(m, m.tally(m.privatize(names, rng=5)).total, texts=5)
    shown = [text for text, own in zip(found.texts, found.shown, strict=True) if own]
    assert sorted(shown) == sorted(shares)
    for text, share, error in zip(found.texts, found.share, found.std_error, strict=True):
        if text in shares:
            assert abs(share - shares[text]) <= stats.norm.isf(1e-7) * error


@pytest.mark.slow
def test_frequent_prefixes_do_not_raise_others() -> None:
    """Everybody's text begins alike: collisions would triple the noise of the other prefixes, and are taken off."""
    m = nz.PrefixExtending(1.0, nz.Texts(4, alphabet=LETTERS), seeds=16)
    texts = np.repeat(["aaaa", "aaab"], [80_000, 20_000])
    group = searching._Group(m, 4, m.tally(m.privatize(texts, rng=1)).total.reshape(4, 16, -1).sum(axis=0))
    other = m.domain.symbols([a + b + "cc" for a in LETTERS for b in LETTERS])
    plain = np.asarray([group.shares(row[None])[0] for row in other])
    both = m.domain.symbols(["aaaa", "aaab"])
    freed = np.asarray([group.shares(np.concatenate([both, row[None]]))[2] for row in other])
    assert plain.std() > 2 * group.noise  # what one would take for noise, and no number of users cures
    assert freed.std() < 1.5 * group.noise
    assert group.shares(both) == pytest.approx([0.8, 0.2], abs=8 * group.noise)


@pytest.mark.slow
def test_few_users_show_nothing_and_stop_nothing() -> None:
    m = nz.PrefixExtending(1.0, nz.Texts(4, alphabet=LETTERS))
    assert not search(m, np.zeros(m.support.size, dtype=np.int64)).shown.any()
    assert not search(m, m.tally(m.privatize(["abc"], rng=1)).total).shown.any()
    with pytest.raises(ValueError, match="texts"):
        search(m, np.zeros(m.support.size, dtype=np.int64), 0)


@pytest.mark.slow
def test_the_standard_error_is_that_of_the_mean_of_scores() -> None:
    m = nz.PrefixExtending(2.0, nz.Texts(3, alphabet=LETTERS))
    reports = m.privatize(np.repeat(["abc", "ha"], [3000, 1000]), rng=9)
    found = search(m, m.tally(reports).total, texts=2)
    own = found.texts.index("abc")
    cells, buckets = np.divmod(reports.astype(np.int64), m.buckets)
    supported = m.hash.bucket(cells % m.seeds, m.domain.symbols(["abc"]), 3) == buckets
    for part, made in ((slice(None), found), (cells // m.seeds == 3, search(m, m.tally(reports).total, 2, apart=True))):
        score = (supported[part] - m.p_other) / (m.p_own - m.p_other)
        assert made.users == score.size
        assert made.share[own] == pytest.approx(score.mean(), abs=4 * score.std() / math.sqrt(score.size) * 0.2)
        assert made.std_error[own] == pytest.approx(score.std() / math.sqrt(score.size), rel=0.02)


@pytest.mark.parametrize("users", [0, 1, 2, 9])
def test_few_reports_about_one_prefix_have_the_standard_error_of_their_mean(users: int) -> None:
    """Of one prefix alone nothing is solved for: the mean of what each report says, and its error by n - 1."""
    m = nz.PrefixExtending(2.0, nz.Texts(3, alphabet=LETTERS), seeds=16)
    symbols = m.domain.symbols(["abc"])
    own = m.hash.every_bucket(symbols, 0)[:, 0]
    seeds = np.arange(users) % 16
    buckets = np.where(np.arange(users) % 3 == 0, own[seeds], (own[seeds] + 1) % m.buckets)
    counts = np.zeros((16, m.buckets), dtype=np.int64)
    np.add.at(counts, (seeds, buckets), 1)
    made = searching._Group(m, 3, counts).measured(symbols)
    (share,), (error,) = made.value, made.std_error
    if users < 2:
        assert math.isnan(share)
        assert error == math.inf
        return
    says = ((np.arange(users) % 3 == 0) - m.p_other) / (m.p_own - m.p_other)
    assert share == pytest.approx(says.mean(), rel=1e-9)
    assert error == pytest.approx(says.std(ddof=1) / math.sqrt(users), rel=1e-9)


# what is predicted


def test_the_share_that_is_found_by_another_computation() -> None:
    """Twelve lengths at epsilon 4: the formula of the plan with scipy's functions and numbers by hand."""
    m = nz.PrefixExtending(4.0, nz.Texts(24))
    plan = TextPrediction(m, 1_000_000)
    odds, buckets = math.exp(4.0), 56
    p, q, users = odds / (odds + buckets - 1), 1 / buckets, 1_000_000 / 14

    def deviation(share: float) -> float:
        return math.sqrt((q * (1 - q) + share * (p * (1 - p) - q * (1 - q))) / users) / (p - q)

    assert float(plan.std_error()) == pytest.approx(deviation(0), rel=1e-9)
    # half a user more than the support that so few survivors exceed by chance
    exact = (stats.binom.isf(0.05 / 40, int(users), q) + 0.5) / int(users)
    assert plan.threshold == pytest.approx((exact - q) / (p - q), rel=1e-6)
    assert plan.threshold > stats.norm.isf(0.05 / 40) * deviation(0)
    pairs = len(extensions(m.domain, OPEN, 2, 4)[0])
    assert 15_000 < pairs < 20_000
    first = len(extensions(m.domain, OPEN, 0, 2)[0])

    def shown(share: float) -> float:
        chance = stats.norm.cdf((share - plan.threshold) / deviation(share))
        chance *= stats.norm.cdf((share - stats.norm.isf(0.025) * deviation(0)) / deviation(share))  # above zero
        for candidates in (first, *[40 * pairs] * 10, 40 * len(extensions(m.domain, OPEN, 22, 24)[0])):
            level = stats.norm.isf(40 / candidates) * deviation(0)
            chance *= stats.norm.cdf((share - level) / deviation(share))
        return float(chance)

    assert shown(plan.findable()) == pytest.approx(0.9, abs=1e-6)
    assert TextPrediction(m, 10).findable() == math.inf
    assert TextPrediction(m, 4_000_000).findable() == pytest.approx(plan.findable() / 2, rel=0.05)


@pytest.mark.long
@pytest.mark.parametrize(("longest", "texts", "users"), [(4, 5, 20_000), (4, 40, 20_000), (9, 5, 60_000)])
def test_recall_false_alarms_and_coverage_are_as_predicted(longest: int, texts: int, users: int) -> None:
    """Of texts that are looked at all at once, of which five are too few to ask for, and of texts that are searched."""
    words, shares = population(300, longest)
    m = nz.PrefixExtending(2.0, nz.Texts(longest, alphabet=LETTERS), seeds=256)
    assert m.at_once == (longest == 4)
    plan = TextPrediction(m, users, texts)
    predicted = sum(plan.recall(dict(zip(words, shares.tolist(), strict=True))).values())
    place = {word: number for number, word in enumerate(words)}
    rng, rounds = np.random.default_rng(2), 60
    shown = covered = wrong = 0
    for _ in range(rounds):
        answers = np.asarray(words)[rng.choice(len(words), users, p=shares)]
        found = search(m, m.tally(m.privatize(answers, rng=rng)).total, texts)
        low, high = found.interval(0.95)
        assert (low[found.shown] > 0).all()
        truth = np.asarray([shares[place[text]] if text in place else 0.0 for text in found.texts])
        shown += int(found.shown.sum())
        covered += int(((low <= truth) & (truth <= high) & found.shown).sum())
        wrong += bool(((truth == 0) & found.shown).any())
    assert abs(shown / rounds - predicted) <= 0.1 * predicted + stats.norm.isf(1e-6) * math.sqrt(predicted / rounds)
    assert covered >= stats.binom.isf(1 - 1e-6, shown, 0.95)
    assert wrong <= stats.binom.isf(1e-6, rounds, 0.05)


def test_the_interval_of_a_chosen_text_holds_by_enumeration() -> None:
    """All counts of 300 people from the least that is chosen on, at shares that are chosen in 1 % to all of cases.

    The twin: the interval of a text that nobody chose misses the rarest of these shares in most of the cases.
    """
    users, gap, others, least = 300, 0.6, 0.1, 55
    counts = np.arange(least, users + 1)
    many, rates = np.full(counts.size, users), np.full(counts.size, others)
    chosen = searching.Chosen(many, gap, 1e-6, counts, rates, np.full(counts.size, least))
    low, high = chosen.interval(0.95)
    assert (np.diff(low) >= 0).all()
    assert (np.diff(high) > 0).all()
    plain = 1.96 * np.sqrt(counts / users * (1 - counts / users) / users) / gap
    naive, holds = [], []
    for share in np.linspace(0.03, 0.6, 96):
        mass = stats.binom.pmf(counts, users, others + gap * share)
        mass /= mass.sum()
        holds.append(mass[(low <= share) & (share <= high)].sum())
        naive.append(mass[np.abs((counts / users - others) / gap - share) <= plain].sum())
    assert np.mean(holds) == pytest.approx(0.953, abs=0.005)
    assert min(holds) > 0.92  # of so few counts none has just 95 %
    assert naive[0] < 0.5


def test_the_lower_end_of_a_chosen_text_is_above_zero() -> None:
    """It is at least the share of which so much support has the chance of a false alarm, at any level."""
    alarm = 0.05 / 18_000
    least = searching.least_count(300, np.full(4, 0.1), alarm)
    counts = least[0] + np.asarray([-1, 0, 1, 25])
    chosen = searching.Chosen(np.full(4, 300), 0.6, alarm, counts, np.full(4, 0.1), least)
    low, high = chosen.interval(0.95)
    assert np.isnan([low[0], high[0]]).all()
    rate = 0.1 + 0.6 * low[1:3]  # where the choice tells nothing about the share, that chance decides
    assert stats.binom.sf(counts[1:3] - 1, 300, rate) == pytest.approx([alarm] * 2, rel=1e-6)
    assert low[1] > 0
    wider = chosen.interval(0.99)
    assert (wider[0][1:] < low[1:]).all()
    assert (wider[1][1:] > high[1:]).all()


def test_the_least_count_is_that_of_the_binomial_law() -> None:
    rates = np.asarray([0.018, 0.25, 0.5])
    least = searching.least_count(4000, rates, 1e-6)
    assert (stats.binom.sf(least - 1, 4000, rates) <= 1e-6).all()
    assert (stats.binom.sf(least - 2, 4000, rates) > 1e-6).all()


def test_all_texts_are_looked_at_and_as_many_shown_as_were_asked_for() -> None:
    """Short and long ones of an alphabet; the first that is too many is not shown, and who measures is left apart."""
    m = nz.PrefixExtending(5.0, nz.Texts(5, alphabet="abcdefgh"))
    answers = np.repeat(["a", "hgfed", "bc", "cab"], [900, 800, 700, 600])
    total = m.tally(m.privatize(answers, rng=4)).total
    found = search(m, total, 3)
    assert [text for text, own in zip(found.texts, found.shown, strict=True) if own] == ["a", "hgfed", "bc"]
    assert found.texts[3] == "cab"
    assert found.users == found.reports == 3000
    assert search(m, total, 4).shown.sum() == 4
    assert found.interval()[1] == pytest.approx(found.chosen.interval(0.95)[1], nan_ok=True)
    apart = search(m, total, 4, apart=True)
    assert apart.users < 900
    assert apart.chosen is None
    assert set(np.asarray(apart.texts)[apart.shown]) <= {"a", "hgfed", "bc", "cab"}


@pytest.mark.slow
def test_a_text_whose_interval_has_zero_is_not_shown() -> None:
    """Those who search and check have seen it, those who measure have not: `apart` it counts as chosen all the same."""
    m = nz.PrefixExtending(4.0, nz.Texts(4))
    total = m.tally(m.privatize(np.full(4000, "ab"), rng=3)).total
    counters = total.reshape(len(m.lengths), m.seeds, m.buckets).copy()
    counters[-1] = np.roll(counters[-1], 1, axis=1)
    seen = [search(m, counters.reshape(-1), 5, apart=apart) for apart in (False, True)]
    assert [bool(one.shown.any()) for one in seen] == [False, True]
    assert search(m, total, 5).shown.any()


def test_the_check_is_the_least_support_that_chance_reaches_rarely_enough() -> None:
    for users, kept, buckets in ((600, 20, 56), (70_000, 40, 56), (40, 2, 4), (1, 40, 4)):
        level = check_level(users, kept, 1 / buckets) * users
        count = math.floor(level)
        assert level == pytest.approx(count + 0.5)  # between two counts: what collisions take off does not decide
        assert stats.binom.sf(count, users, 1 / buckets) <= 0.05 / kept * (1 + 1e-9)
        assert stats.binom.sf(count - 1, users, 1 / buckets) > 0.05 / kept


def test_one_user_is_support_enough_where_chance_hardly_ever_brings_one() -> None:
    """By P(Bin(1000, rate) >= support), in closed form for one; nobody is never enough."""
    supports, rate = np.asarray([0, 1, 2, 3, 1, 2]), np.asarray([1e-6, 1e-6, 1e-6, 1e-6, 1e-3, 1e-3])
    group: Any = SimpleNamespace(users=1000, chance=1e-7)
    group.supports = lambda symbols, shares: (supports, rate)
    group.without = lambda symbols, shares: None
    group.effective = lambda rates, rest: np.full(6, 1000.0)
    chance = np.where(supports == 0, 1.0, stats.binom.sf(supports - 1, 1000, rate))
    assert chance[1] == pytest.approx(-math.expm1(1000 * math.log1p(-1e-6)))
    for alarm in (1e-9, 9e-4, 1.1e-3, 0.3, 0.7):
        found = searching._Group.passing(group, None, None, alarm)  # type: ignore[arg-type]
        assert found.tolist() == ((supports > 0) & (chance <= alarm)).tolist()
    assert searching._Group.passing(group, None, None, 1.0).tolist() == [False] + [True] * 5  # type: ignore[arg-type]


@pytest.mark.slow
def test_few_people_do_not_make_texts_appear() -> None:
    """Forty people, all of one text, 60 times: another text is shown in 5 % at most. At a level that counts could meet
    it was shown in 14 %, whenever collisions were taken off."""
    m = nz.PrefixExtending(epsilon=4.0, domain=nz.Texts(4))
    rng = np.random.default_rng(3)
    wrong = found = 0
    for _ in range(60):
        told = search(m, m.tally(m.privatize(np.full(40, "ab"), rng=rng)).total, 20)
        shown = {text for text, own in zip(told.texts, told.shown, strict=True) if own}
        wrong += bool(shown - {"ab"})
        found += "ab" in shown
    assert wrong <= stats.binom.isf(1e-3, 60, 0.05)
    assert found > 30


@pytest.mark.slow
def test_texts_that_collide_with_frequent_ones_are_not_shown() -> None:
    """At epsilon 8 there are 21 maps: a text that collides with one of 50 % under two of them has 5 % of support.

    A text that nobody has is shown in 5 % of collections: 9 of 20 or more have a chance of 2e-7. The twin: where the
    check goes by chance alone, which takes off that support on average, it lets such texts through in most of them.
    """
    mechanism, world = nz.PrefixExtending(8.0, nz.Texts(8)), np.random.default_rng(4)
    alarms = by_chance_alone = 0
    for _ in range(20):
        people = world.choice(["tea", "maté"], 3000)
        found = search(mechanism, mechanism.tally(mechanism.privatize(people, rng=world)).total)
        strange = ~np.isin(found.texts, ["tea", "maté"])
        assert found.shown[~strange].all()
        assert (~strange).sum() == 2
        alarms += bool((found.shown & strange).any())
        by_chance_alone += bool(((found.checked > found.threshold) & strange).any())
    assert alarms < 9 <= by_chance_alone


@pytest.mark.parametrize(("prefixes", "limit"), [(2, 8), (3, 12)])
def test_so_few_maps_that_two_prefixes_may_be_alike_have_no_inverse(prefixes: int, limit: int) -> None:
    """Two prefixes that no map tells apart share what is theirs; where maps are many enough that is an error.

    With two buckets a map has one counter that is free, and four for each prefix are asked for.
    """
    alike = np.zeros((limit - 1, prefixes), dtype=np.int64)
    alike[:, 2:] = np.arange(limit - 1)[:, None] % 2
    solved = searching._untangled(alike, 0.5)
    assert solved[0, :2] == pytest.approx(solved[1, :2])
    with pytest.raises(np.linalg.LinAlgError, match="Singular"):
        searching._untangled(np.zeros((limit, prefixes), dtype=np.int64), 0.5)
    apart = np.arange(limit)[:, None] // [1, 2, 4][:prefixes] % 2
    same = (apart[:, :, None] == apart[:, None, :]).mean(axis=0)
    assert searching._untangled(apart, 0.5) == pytest.approx(np.linalg.inv((same - 0.5) / 0.5))


@pytest.mark.slow
@pytest.mark.parametrize("apart", [False, True])
def test_what_texts_lend_each_other_is_in_the_interval(apart: bool) -> None:
    """Of 500 texts alike under a few maps: collisions add to every share what no number of users evens out."""
    rng, words = np.random.default_rng(5), [a + b + c for a in LETTERS for b in LETTERS for c in LETTERS][:500]
    m, users = nz.PrefixExtending(3.0, nz.Texts(3, alphabet=LETTERS)), 20_000_000
    codes, off = m.domain.symbols(words), []
    own = m.hash.every_bucket(codes, 0)
    other = (1 - m.p_own) / (m.buckets - 1)
    mean = sum(np.where(np.arange(m.buckets) == row[:, None], m.p_own, other) for row in own.T) / (500 * m.seeds)
    for _ in range(3):
        total = np.stack([rng.multinomial(users // 4, mean.ravel()) for _ in range(4)])
        if apart:
            made = searching.measured(m, total.ravel(), words[:50])
            low, high = made.interval(0.95)
        else:
            found = search(m, total.ravel(), 50)
            low, high = (side[found.shown] for side in found.interval(0.95))
        off += ((low <= 1 / 500) & (high >= 1 / 500)).tolist()
    assert np.mean(off) > 0.85


def test_one_report_says_as_much_as_two_alike() -> None:
    made = nz.PrefixExtending.example(2.0)
    width = made.domain.width
    counts = np.zeros_like(
        searching._groups(made, made.tally(made.privatize(np.asarray(["a"]), rng=1)).total)[0].counts
    )
    counts.flat[1] = 1
    one, two = (searching._Group(made, width, many * counts) for many in (1, 2))
    assert (one.users, two.users) == (1, 2)
    symbols = np.asarray([[1] * width, [2] * width])
    assert one.shares(symbols) == pytest.approx(two.shares(symbols), rel=1e-12)
    found = one.shares_alone(symbols, one.excess)
    assert found == pytest.approx(two.shares_alone(symbols, two.excess), rel=1e-12)
    assert np.abs(found).max() > 0
