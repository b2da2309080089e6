"""The statements of the five papers, computed: algorithms, theorems, lemmas and corollaries

`noisette reproduce readings` computes each anew, in seconds. "As printed" is what the text's own formula gives,
transcribed here without a look at the library; "Noisette" is what the library has for it, where it has the published
form; "what holds" is the truth: exact, or measured where it says so. The verdict has five words at most.

Figures and tables are in the experiments of each paper; [one page](../../docs/papers.md) has all of them, line by line.
"""

from experiments.readings.federated import sun2021ldpfl
from experiments.readings.levels import hao2023hierarchical
from experiments.readings.tensors import yang2021differential, yuan2025local
from experiments.readings.thesis import duan2024benchmarking

STUDIES = (yuan2025local, hao2023hierarchical, yang2021differential, sun2021ldpfl, duan2024benchmarking)
