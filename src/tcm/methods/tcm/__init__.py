"""The forms of TCM's second stage (TCM Section 3.2) and the parts that they share.

In: images and their counterfactuals. Out: P(Y | do(X)). Start with `tcm.py`, the default, or with `paper.py`, the
paper's form. `proxy.py` has TCM Eq. (5) to (7).
"""
