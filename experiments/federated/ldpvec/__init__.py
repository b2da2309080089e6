"""LDPVec, noise on the angles of a gradient: chapter 6 of thesis 004, run again

Duan 2024. `noisette reproduce ldpvec --full` runs everything at its larger size, without `--full` a reduced one in
seconds; the line under each table says which of the two it shows, and a
study that is not on this page has not been run at its larger size. As in the thesis every device holds images of two
digits, makes E steps of plain descent a round, and privatises its last gradient, clipped to 0.1: the first E - 1 steps
leave the device as they are. So no finite epsilon holds for it, whatever the noise, and what is printed as epsilon a
round is that of the last gradient at best. The sound runs privatise the whole update of a round instead.

"numbers": each coordinate of the clipped gradient by itself, its epsilon shared by all; Gaussian noise on the vector.
"angles, as published": Algorithm 6, which keeps the length. "PrivUnitG": ours, for the direction of the whole update.

What differs from the thesis. Table 6.4's network is not the one it prints (its CNN is for CIFAR-10, the accuracies are
said to be for MNIST): ours has two convolutions of stride two, 5,994 weights. It has 100 devices and 5 steps a round,
where the thesis has 1,000 devices and 200. Figure 6.2 has 10 rounds, where the thesis has 25. Steps fall more slowly
than its 1 / (1 + t), which stops at once. One seed. Figure 6.3's network of 616,610 weights is left out: 500 devices
of that size are hours here, and its claim is that of Figure 6.2.
"""

from experiments.federated.ldpvec.studies import fig_6_2, table_6_4

STUDIES = (fig_6_2, table_6_4)
