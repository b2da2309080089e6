"""Hierarchical aggregation: levels of protection for a number, run again

Hao, Wu, Wan 2023. `noisette reproduce hierarchical --full` gives what is here, without `--full` a small version in
seconds. The paper compares methods that give unlike protection. Each part therefore has three columns: what the paper
says, what we obtain with its settings, and what the same data give when every method keeps one graded matrix: the
exact one of the paper's own mechanism, LHP, at its budgets 5e, 4e, 3e, 2e and e.

The paper's census tables (IPUMS) could not be had; persons of the American Community Survey 2024 stand in.
"""

from experiments.hierarchical.means import fig_1, fig_2, fig_2_size
from experiments.hierarchical.regression import fig_3

STUDIES = (fig_1, fig_2, fig_2_size, fig_3)
