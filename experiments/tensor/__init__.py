"""Tensor-variate Gaussian noise: the experiments of Yang et al. 2021, run again

Yang, Xiang, Chen, Li, Li 2021. `noisette reproduce tensor --full` runs everything at its larger size, without `--full`
in half a minute; the line under each table says which of the two it shows. Every accuracy stands beside two epsilons:
what the mechanism claims and what holds, by the exact condition for Gaussian noise. The paper gives its results as
figures only, so its claims are given in words.

What differs from the paper. Models: LeNet-5 with tanh has the feature shape of the paper's LeNet in Types II and III;
in Type I it stands for one whose largest layer is 3,136 x 512. Four convolutions stand for VGG-16 on CIFAR-10, a bag of
words with one hidden layer of 150 for a BiLSTM on IMDB. Data: all there are, in whole batches in Types II and III, but
for a fifth of MNIST in Type I; SVHN could not be had and is left out; Credit is a sample of 36,320 rows with all 492
frauds, of which seven tenths train, as in the paper. What extracts features in Type II is trained on 10,000 images, or
5,000 reviews, that count as public and are nobody else's, and the others are private; the paper does not say on whom it
is trained. In Type III the model is trained on the whole training set, as in the paper, where the data are whole. How
long the paper trains is not said: Type I has one pass over MNIST and three over Credit and Adult, what extracts
features six, or three over the whole set, what is trained on features two. Optimisers are Adam throughout. Scores are
means over seeds of lots and noise, with their standard deviation, which the bands of the charts show; the line under
each table says how many seeds.

"Optimized" is read as its row of Table IV has it, with the noise of Abadi et al. 2016; the text cites Xiang et al. 2019
for it. Matrix mechanism: on Adult, IMDB and CTG, as in the paper, as an element-level mechanism whose epsilon is
divided among the elements, like the paper's Gaussian; in Type III it does not hold at the largest epsilon, as its row
shows. JL comes as its authors print it, and with its exact delta. Appendix D, which holds the composition, could not be
had: for MVG, UDN and IDN in Type I sampling and the optimal composition of Kairouz et al. divide the budget among lots
and tensors.

"Whole batch" is the paper's unit: all 256 people of a batch may change at once. "One person" is one row of it. Ours is
`TensorGaussian` with the exact calibration, for either unit; in Type I it is `make_private`.
"""

from experiments.tensor.descent import type_1
from experiments.tensor.errors import ctg, table_iv
from experiments.tensor.features import type_2, type_3

STUDIES = (table_iv, type_1, type_2, type_3, ctg)
