"""LDP-FL, one of two numbers for every weight: paper 003's experiments, run again

Sun, Qian, Chen 2021. `noisette reproduce ldpfl --full` runs everything at its larger size, without `--full` a reduced
one in seconds; the line under each table says which of the two it shows, and a
study that is not on this page has not been run at its larger size. Every accuracy stands beside the guarantee
that holds for a client over the whole run, at delta = 1e-5: the paper's epsilon is that of one weight in one round, and
it does not stay so over thousands of weights and ten rounds.

What differs from the paper. It does not give its networks: ours are two convolutions of stride two (5,994 weights) for
the grey images and three (33,834 weights) in place of the small VGG for CIFAR-10. Clients make one pass over their
images a round, in batches of 10 with steps of 0.2 (5 and 0.1 on CIFAR-10), for ten rounds. They have fewer images than
the paper's: 200 each of MNIST (600), 100 of Fashion-MNIST (300), 20 of CIFAR-10 (100). One seed, where the paper takes
the mean of ten.

Ours: Gaussian noise on the clipped update, calibrated to the epsilon that truly holds for LDP-FL's run.
"""

from experiments.federated.headline import headline
from experiments.federated.ldpfl.figures import fig_3, fig_4, fig_5, table_1

STUDIES = (fig_3, fig_4, fig_5, table_1, headline)
