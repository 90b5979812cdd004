"""The forms of TCM's second stage (Section 3.2) and the parts that they share.

In: images and their counterfactuals. Out: P(Y | do(X)). Start with `tcm.py`; `proxy.py` is Eq. (5) to (7).
"""
