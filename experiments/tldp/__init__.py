"""TLDP, keep an entry or add noise to it: the experiments of Yuan et al. 2025, run again

Yuan, Tang, Huang, Wu, Wang 2025. `noisette reproduce tldp --full` runs everything at its larger size, without `--full`
in half a minute; the line under each table says which of the two it shows. Every score stands beside the claimed
epsilon and the one that holds at delta = 1e-5, for the record (a whole image, feature vector or model) and for one of
its entries. The paper gives its results as figures only, so its claims are given in words.

What differs from the paper. Type II has all images: 10,000 of each set count as public and train a small MobileNet with
tanh, 63,066 weights and 160 features, in place of one that knows ImageNet, with 1,280; all others are private, and all
10,000 test images are judged. Its scores are means over five seeds, with their standard deviation, which the bands of
the charts show. Types I and III are smaller: a CNN of two convolutions with tanh stands in for MobileNet, a bag of
words with one hidden layer for BiLSTM; they are trained on 2,000 images, or by three users with 300 examples each, and
have one seed, so that differences of a few hundredths are chance. SVHN is read where it can be had; it could not be had
here, and Fashion-MNIST is in its place. Darknet is a sample of 5,000 flows with 10 features. Budgets are ours: 1 to 64
in Type I, to 256 in Type II, 100 to 10,000 in Type III; the paper's text has 90 % of MNIST in Type I below 1. TLDP's
reports are rounded to whole numbers: as published, with real reports, no finite epsilon holds, and there would be no
axis to draw it on. The weights of TLDP-L-w and TLDP-G-w are the mean of public images; the paper reads them off the
image itself, which gives it away; what is given as their true epsilon is that of the unweighted form, an upper bound.
In Type III all parameters of a user are one tensor, sent once an epoch; the claimed epsilon is that of one message, the
true one that of the run; LLAGP and DPHSGD are private descent with budgets by layer and with thresholds from the
curvature, as `noisette.sgd` has them, at the users.

Ours: `TensorGaussian` with the exact calibration at the claimed epsilon; the same at the epsilon that TLDP-L truly has
for the record; for an entry, `PiecewiseOptimal`, or sound `RetainOrNoise` where epsilon is large, at what TLDP-L truly
has for an entry; and in Type III `make_private`.
"""

from experiments.tldp.data import type_1
from experiments.tldp.features import type_2
from experiments.tldp.parameters import type_3
from experiments.tldp.tables import equal_unit, guarantee, table_5

STUDIES = (guarantee, table_5, equal_unit, type_1, type_2, type_3)
