"""Stage 1: k mechanisms that transport images between two domains (TCM Section 3.1).

In: a `Task`. Out: a run folder with k pairs of generators and, from `transport.py`, the counterfactuals of every image
on disk. Start with `train.py`; `bank.py` has the competition (TCM Algorithm 1), `load.py` loads the result.
"""
