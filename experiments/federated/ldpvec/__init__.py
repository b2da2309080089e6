"""LDPVec, noise on the angles of a gradient: chapter 6 of Duan 2024, run again

Duan 2024. `noisette reproduce ldpvec --full` runs everything at its larger size, without `--full` a reduced one in
seconds; the line under each table says which of the two it shows. As in the thesis every device holds images of two
classes, makes E steps of plain descent a round, and privatises its last gradient, clipped to 0.1: the first E - 1 steps
leave the device as they are. So no finite epsilon holds for it, whatever the noise, and what is printed as epsilon a
round is that of the last gradient at best. The sound runs privatise the whole update of a round instead, clipped to 0.5
(0.1 in Figure 6.3); their true epsilon is for all rounds of a device, at delta = 1e-5.

"numbers": each coordinate of the clipped gradient by itself, its epsilon shared by all; Gaussian noise on the vector.
"angles": Algorithm 6 as published, which keeps the length. "privunit-g": ours, for the direction of the whole update.

What differs from the thesis. Figure 6.2 has its 500 devices, 20 steps a round and 25 rounds. Table 6.4's network is not
the one it prints (its CNN is for CIFAR-10, the accuracies are said to be for MNIST): ours has two convolutions and
2,826 weights. It has 100 devices and 20 steps a round, where the thesis has 1,000 devices and 200. Figure 6.3 has the
thesis's network of 616,610 weights, but 10 devices and 40 steps, where the thesis has 500 or more and 5,000. Steps fall
more slowly than its 1 / (1 + t), which stops at once. One seed.

Paper 000 averages perturbed parameters too, its Type III: see [its experiments](../../tldp/README.md).
"""

from experiments.federated.ldpvec.studies import fig_6_2, fig_6_2_limit, fig_6_3, table_6_4

STUDIES = (fig_6_2, fig_6_2_limit, fig_6_3, table_6_4)
