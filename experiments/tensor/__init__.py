"""Tensor-variate Gaussian noise: the experiments of Yang et al. 2021, run again

Yang, Xiang, Chen, Li, Li 2021. `noisette reproduce tensor --full` runs everything at its larger size, without `--full`
in half a minute; the line under each table says which of the two it shows. Every accuracy stands beside two epsilons:
what the mechanism claims and what holds, by the exact condition for Gaussian noise. The paper gives its results as
figures only, so its claims are given in words.

What differs from the paper. Models are smaller: LeNet with tanh for MNIST, four convolutions in place of VGG-16 for
CIFAR-10, a bag of words with one hidden layer of 150 in place of a BiLSTM for IMDB; all of them are trained on
thousands of examples, not on tens of thousands. Scores of Type I on Credit and Adult are means over three seeds of lots
and noise, with their standard deviation; those on MNIST and of Types II and III are of one seed, so that differences of
a few hundredths are chance. SVHN of Types II and III is left out.
Credit is a sample of 36,320 rows with all 492 frauds. What extracts features is trained on people who count as public
and are nobody else's; the paper does not say on whom. Matrix mechanism: on Adult, IMDB and CTG, as in the paper, as an
element-level mechanism whose epsilon is divided among the elements, like the paper's Gaussian; in Type III it does not
hold at the largest epsilon, as its row shows. JL comes with its exact delta. Appendix D, which holds the composition,
could not be had: for MVG, UDN and IDN in Type I sampling and the optimal composition of Kairouz et al. divide the
budget among lots and tensors. Optimisers are Adam throughout.

"Whole batch" is the paper's unit: all 256 people of a batch may change at once. "One person" is one row of it. Ours is
`TensorGaussian` with the exact calibration, for either unit; in Type I it is `make_private`.
"""

from experiments.tensor.descent import type_1
from experiments.tensor.errors import ctg, table_iv
from experiments.tensor.features import type_2, type_3

STUDIES = (table_iv, type_1, type_2, type_3, ctg)
