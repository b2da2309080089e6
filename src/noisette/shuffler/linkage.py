"""What holds once packets of several fragments are shuffled: the block is the unit that is hidden, not the fragment."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from noisette import _validate
from noisette.shuffler.layout import PacketLayout

if TYPE_CHECKING:
    from noisette.core import Mechanism
    from noisette.guarantees import Guarantee


def shuffled_blocks(
    fragment: Mechanism | Guarantee, layout: PacketLayout, *, clients: int, delta: float, rounds: int = 1
) -> Guarantee:
    """Return what the server can learn about one client from shuffled packets of linked fragments.

    ``fragment`` is the mechanism of one position, or its pure local guarantee. The fragments of a block stay together,
    so one block is one report of epsilon = batch * fragment.epsilon; ``clients`` such reports of every block are
    shuffled, and all blocks of all rounds compose. ``clients`` is the size of the smallest batch, at least the
    shuffler's minimum, less those who collude with the server.

    *Guarantee*: (epsilon, delta) in the shuffled model for a client's whole vector over all rounds, relation replace;
    never more than what holds without a shuffler. With batch = 1 it is that of shuffled single fragments, with
    batch = dims that of shuffled whole vectors. The last block is counted as if it were full.
    Feldman, McMillan, Talwar 2021, section 3 (`noisette.accounting.shuffled`).

    >>> from noisette.guarantees import Guarantee
    >>> for batch in (10, 100, 1000):
    ...     found = shuffled_blocks(Guarantee(epsilon=0.01), PacketLayout(1000, batch), clients=1000, delta=1e-6)
    ...     print(batch, round(found.epsilon, 2))
    10 0.12
    100 0.62
    1000 1.37
    """
    from noisette.accounting import compose, shuffled
    from noisette.guarantees import Guarantee

    _validate.integer(rounds, "rounds", low=1)
    linked: Mechanism | Guarantee = fragment
    if layout.batch > 1:
        one = fragment if isinstance(fragment, Guarantee) else fragment.guarantee
        linked = replace(one, epsilon=one.epsilon * layout.batch)
    found = shuffled(linked, clients, delta, times=layout.blocks * rounds)
    alone = compose(fragment, layout.dims * rounds, delta=delta)
    return replace(found, epsilon=min(found.epsilon, alone.epsilon))
