"""Stage 1: k mechanisms that carry images between two domains (TCM Section 3.1).

In: a `Task`. Out: a run folder with k pairs of generators and, by `transport.py`, the counterfactuals of every image on
disk. Start with `train.py`; `bank.py` is the competition of Algorithm 1, and `load.py` is what stage 2 reads.
"""
