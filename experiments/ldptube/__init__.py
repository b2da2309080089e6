"""LDPTube: the thesis's prediction and enhancement, run again

Duan 2024, chapters 3 and 4. `noisette reproduce ldptube --full` gives what is here, without `--full` a small version in
seconds. Each part says what the thesis claims, what we obtain, and what the best mechanism and the enhancement `auto`
make of it.

Three things differ. COV-19 could not be had: in its place are a table of 750 yes-or-no features of 150,000 persons of
the American Community Survey 2024, many of them highly correlated, and the 784 pixels of MNIST, one image a user. And
in Figures 4.6 and 4.7 and in the last part the collections, whose number stands below each table, are drawn from the
Gaussian model with the exact moments of each mechanism; real reports about 20 dimensions of each table, and whole real
collections in the last part, are set beside its prediction. Everything else is made of real reports. And the weight of
L2 has 1, the bound of the domain, where Lemma 5 has the mean that is to be estimated: "Lemma 5" below shows both.
"""

from experiments.ldptube.case_study import fig_4_5, misprint, table_4_2
from experiments.ldptube.deviations import fig_4_3, fig_4_4
from experiments.ldptube.enhancement import fig_4_6, fig_4_7
from experiments.ldptube.promises import sampled_dimensions
from experiments.ldptube.theorems import fig_4_8, lemma_5, theorems_4_and_5

STUDIES = (
    *(fig_4_3, fig_4_4, fig_4_5, table_4_2, misprint, theorems_4_and_5, lemma_5),
    *(fig_4_6, fig_4_7, fig_4_8, sampled_dimensions),
)
