"""scikit-learn's interface: an estimator on images or feature vectors, and scorers without target labels.

In: X, y and sample_domain as scikit-learn and skada have them. Out: a fitted `TCMClassifier`, and scores of target
predictions. Start with `estimator.py`; `images.py` and `vectors.py` train on the two kinds of samples.
"""
