"""How good is a model without target labels? Estimates of its accuracy, an audit by hand, and comparisons of runs.

In: run folders of stage 2 with their predictions for both domains. Out: `Estimate`, `Audit` and `Comparison`, which are
also written into the run. Start with `estimate.py`; `estimators.py` has the mathematics, `known_cases.py` says how far
off the estimates were where the truth is known.
"""
