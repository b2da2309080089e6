"""LDP-FL, one of two numbers for every weight: the experiments of Sun et al. 2021, run again

Sun, Qian, Chen 2021. `noisette reproduce ldpfl --full` runs everything at its larger size, without `--full` a reduced
one in seconds; the line under each table says which of the two it shows. Every accuracy stands beside the guarantee
that holds for a client over the whole run, at delta = 1e-5: the paper's epsilon is that of one weight in one round, and
it does not stay so over thousands of weights and ten rounds.

What differs from the paper. Clients and images are as many as the paper's: 100 clients of 600 images of MNIST, 200 of
300 of Fashion-MNIST, 500 of 100 of CIFAR-10; the line under each table has rounds and passes. The paper does not give
its networks: ours are two convolutions of stride two, 5,994 weights for the grey images, and 10,218 on images of half
the side in place of the small VGG for CIFAR-10, which keeps training without noise, in the last column, below the
paper's there. What range and noise cost together is the distance to that column; "Figure 5 in parts" tells them apart
on MNIST, and shows how much is the network's. One seed, where the paper takes the mean of ten.

Ours: Gaussian noise on the clipped update, calibrated to the epsilon that truly holds for LDP-FL's run.

Paper 000 averages perturbed parameters too, its Type III: see [its experiments](../../tldp/README.md).
"""

from experiments.federated.headline import headline
from experiments.federated.ldpfl.figures import fig_3, fig_4, fig_5, fig_5_parts, table_1

STUDIES = (fig_3, fig_4, fig_5, fig_5_parts, table_1, headline)
