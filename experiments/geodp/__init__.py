"""GeoDP: noise on directions, run again

Duan 2024, chapter 5. `noisette reproduce geodp --full` runs the larger setting, without `--full` a small one; `--only
headline` runs one study. The thesis compares at the same noise multiplier. Each row here also says which ε truly holds:
GeoDP as printed divides the noise on the angles by the batch size, which one example can defeat
(tests/sgd/test_geodp.py). Sound GeoDP pays for what one example can do. The last columns of the tables say what plain
DP-SGD reaches at the ε that truly holds for the row.

"As printed" keeps angles between (1 - β) π and π, as Algorithm 5 has it. In many dimensions angles lie near π/2, so
that range loses almost all of a gradient. "Range around π/2" is our reading in the thesis's favour: the same width and
the same noise, where the angles are. Kinder yet, in Figures 5.1, 5.3 and 5.4, is "no angle clipped": the range has all
of the gradient's own angles, as the proof of Lemma 6 takes it, though nobody knows them. The ε of neither is better.
Nothing was trained so. At σ = 10 of Table 5.2 it could not help: the noise of 0.057 on each of 21,839 angles takes
almost everything from all entries but the first thousand.

The first table is what we would use instead. Two cores that several others shared set the sizes: each study says what
is smaller than in the thesis.
"""

from experiments.geodp.accuracy import headline
from experiments.geodp.attacks import table_5_4
from experiments.geodp.directions import fig_5_3, fig_5_4
from experiments.geodp.logistic import fig_5_5
from experiments.geodp.sizes import cifar10_sizes
from experiments.geodp.training import table_5_2, table_5_3

STUDIES = (headline, cifar10_sizes, table_5_2, table_5_3, table_5_4, fig_5_3, fig_5_4, fig_5_5)
