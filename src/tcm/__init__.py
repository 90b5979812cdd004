"""tcm: unsupervised domain adaptation of image classifiers by Transporting Causal Mechanisms."""

__version__ = "0.2.0"
