"""GeoDP: noise on directions, run again

Duan 2024, chapter 5. `noisette reproduce geodp --full` runs the larger setting, without `--full` a small one; `--only
headline` runs one study. The thesis compares at the same noise multiplier. Each row here also says which ε truly holds:
GeoDP as printed divides the noise on the angles by the batch size, which one example can defeat (spec/geodp.md;
tests/sgd/test_geodp.py). Sound GeoDP pays for what one example can do. The last column of the tables is plain DP-SGD
with normalised gradients at the ε that truly holds for the row.

The first table is what we would use instead. A study that is not on this page has not been run in its larger setting.
"""

from experiments.geodp.accuracy import headline
from experiments.geodp.attacks import table_5_4
from experiments.geodp.directions import fig_5_3, fig_5_4
from experiments.geodp.training import fig_5_5, table_5_2, table_5_3

STUDIES = (headline, table_5_2, table_5_3, table_5_4, fig_5_3, fig_5_4, fig_5_5)
