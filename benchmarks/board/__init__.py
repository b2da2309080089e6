"""The board: methods by task on real data, at one true guarantee, with the evidence that the guarantee is true.

`noisette board` runs what has no result yet and writes one page. A task is a file of this folder (numbers, categories,
vectors, learning ...): it says which cells there are, each a data set at a budget, and which methods answer them.

    frame.py     cells, methods, outcomes; running in pieces; results in results/, one file a task
    evidence.py  certified, audited or refuted: what stands behind a guarantee
    data.py      people's values, from the data sets
    peers.py     other libraries, in an environment of their own; alone.py talks to it
    curves.py    how cost and error grow with users, dimensions, categories and weights
    page.py      the page, with page.css and page.js
"""
