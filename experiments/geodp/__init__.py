"""GeoDP: noise on directions, run again

Duan 2024, chapter 5. `noisette reproduce geodp --full` runs the larger setting, without `--full` a small one. The
thesis compares at the same noise multiplier. Each row here also says which ε truly holds: GeoDP as printed divides the
noise on the angles by the batch size, which one example can defeat (spec/geodp.md; tests/sgd/test_geodp.py).
"""

from experiments.geodp.directions import fig_5_3, fig_5_4
from experiments.geodp.training import fig_5_5, table_5_2

STUDIES = (fig_5_3, fig_5_4, fig_5_5, table_5_2)
