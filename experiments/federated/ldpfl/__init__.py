"""LDP-FL, one of two numbers for every weight: the experiments of Sun et al. 2021, run again

Sun, Qian, Chen 2021. `noisette reproduce ldpfl --full` runs everything at its larger size, without `--full` a reduced
one in seconds; the line under each table says which of the two it shows. Every accuracy stands beside the guarantee
that holds for a client over the whole run, at delta = 1e-5: the paper's epsilon is that of one weight in one round, and
it does not stay so over thousands of weights and ten rounds.

What differs from the paper. Clients and images are as many as the paper's: 100 clients of 600 images of MNIST, 200 of
300 of Fashion-MNIST, 500 of 100 of CIFAR-10; the line under each table has rounds and passes.

- Steps: 0.2 here, 0.03 (MNIST, Fashion-MNIST) and 0.015 (CIFAR-10) in the paper, which does not say how many passes a
  client makes in a round: ours make 3 or 5, and the larger step makes up for few passes. "Figure 5 in parts" has a row
  with 0.03.
- Networks: the paper's are not given. Ours are two convolutions of stride two, 5,994 weights for the grey images, and
  10,218 on images of half the side in place of the small VGG for CIFAR-10, which keeps training without noise, in the
  last column, below the paper's there. So of CIFAR-10 nothing is judged. What range and noise cost together is the
  distance to that column; "Figure 5 in parts" tells them apart on MNIST, and shows how much is the network's.
- A study of its own has a small VGG of 33,834 weights on whole images of CIFAR-10, and the paper's 15 rounds. One in
  twenty of its 500 clients trains in a round and reports for twenty: the noise is that of 500 reports, but the mean is
  one of 25 models, not of 500. Steps are 0.05, in sixteen bits, and a client mirrors every other image: the paper says
  that images are "fed into the network directly". The paper leaves its layers, initial weights, passes and batches
  open; its two hours on a V100 for 15 rounds of 500 clients are a second for each client and round. "The small VGG in
  parts" shows that initial weights and the scale of pixels bring most of what is gained on torch's own, and that more
  passes, more clients and the paper's step bring little in four rounds, where two points are chance. They do not
  explain what is missing to the paper's level without noise. Not tried over 15 rounds are a wider or deeper network,
  layers that normalise, and all 500 clients in every round.
- Seeds: one, where the paper takes the mean of ten.
- Accuracy: on test images. The captions of the paper's Figures 3 and 5 say "training accuracy", its text "accuracy".
- Rounds: 10 everywhere but with the VGG, where the paper has 15 on Fashion-MNIST and CIFAR-10.
- Ranges: in Figures 3 and 4 Fashion-MNIST has +-0.075, as it has MNIST's network here; with the paper's +-0.015 it does
  not learn, see Figure 5 and Table 1.
- Lengths: to which length our own updates are clipped was chosen by hand, on the same data.

Figure 4 has as many clients as its caption says; its text says 500 of each, of which MNIST's 5 % are 25, not 5: a table
of its own has those. In the paper's Figure 3 all images are dealt out, so that fewer clients have more each. Here its
rows have as many images a client as the other figures, where the column "images each" does not say more. Where a sweep
changes the noise or the clients alone, ours was not run again, and its column has a dash.

Ours: Gaussian noise on the clipped update, calibrated to the epsilon that truly holds for LDP-FL's run.

Yuan et al. 2025 average perturbed parameters too, their Type III: see [its experiments](../../tldp/README.md).
"""

from experiments.federated.headline import headline
from experiments.federated.ldpfl.figures import (
    fig_3,
    fig_4,
    fig_4_text,
    fig_5,
    fig_5_parts,
    fig_5d,
    table_1,
    vgg,
    vgg_parts,
)

STUDIES = (fig_3, fig_4, fig_4_text, fig_5, fig_5d, vgg, vgg_parts, fig_5_parts, table_1, headline)
