"""LDPVec, noise on the angles of a gradient: chapter 6 of Duan 2024, run again

Duan 2024. `noisette reproduce ldpvec --full` runs everything at its larger size, without `--full` a reduced one in
seconds; the line under each table says which of the two it shows. As in the thesis every device holds images of two
classes and makes E steps a round. Equation 6.3 clips every gradient, to 0.1 here, and adds noise to the last one: the
model after it is all that leaves the device. If all gradients are clipped, Laplace and Gaussian noise give that model a
finite epsilon: it moves by 2 C times the sum of the rates. Piecewise reports and angles, whose length is told as it is,
give it none; nor does any noise where the first E - 1 gradients are not clipped ("it alone clipped"). The sound runs
privatise the whole update of a round, clipped to 0.5 (0.1 in Figure 6.3). The true epsilon is for all rounds of a
device, at delta = 1e-5.

"numbers": each coordinate of the clipped gradient by itself, its epsilon shared by all, in the range that section 6.1.4
calibrates to: a coordinate may be as large as the whole gradient, C' = 2 C d. "numbers in ±C/√d" is the range of
section 6.1.2. Both calibrations are the thesis's: section 6.1.2 makes of a gradient g, |g| ≤ C, the "normalized
gradient" g' = g √d/C, adds "normalized LDP noise" n', which its section 3.1.2 makes for [-1, 1], and says that n = n'
C/√d keeps LDP. That noise has 1/√d of the size. It is enough only if no coordinate of g' leaves [-1, 1], and one may be
as large as √d: that we clip it there is all that is ours. Notes that we worked from call this calibration our
improvement of the thesis's baseline, which is wrong. Section 6.3.2, on the experiments, names neither: it divides the
budget "as per the collective sensitivity" and not by dimensions, which we read as section 6.1.4's C'. Gaussian noise is
on the vector, in both. "angles": Algorithm 6 as published, which keeps the length. "privunit-g": ours, for the
direction of the whole update.

What differs from the thesis. Figure 6.2 has its 500 devices, 20 steps a round and 25 rounds. Table 6.4's network is not
the one it prints (its CNN is for CIFAR-10, the accuracies are said to be for MNIST, and its layers have 70,340 weights,
not the 70,540 of its sum): ours has two convolutions and 2,826 weights. It has 100 devices and 20 steps a round, where
the thesis has 1,000 devices and 200 (by its section 6.3.2, 10 rounds of 10 epochs each, which are about 20 steps for 60
images). "One round" has the thesis's own networks and devices, for the noise of one round. Figure 6.3 has the thesis's
network of 616,610 weights, but 20 devices and 500 steps, 50 a round, where the thesis has 500 or more and 5,000, 20 or
50 a round. Steps fall more slowly than its 1 / (1 + t): with that, gradients clipped to 0.1 and first steps of 0.1, a
model moves by 0.09 at most in 5,000 steps. One seed.

TLDP averages perturbed parameters too, its Type III: see [its experiments](../../tldp/README.md).
"""

from experiments.federated.ldpvec.studies import fig_6_2, fig_6_2_limit, fig_6_3, one_round, table_6_4

STUDIES = (fig_6_2, fig_6_2_limit, fig_6_3, table_6_4, one_round)
