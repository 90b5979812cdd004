"""Networks and mathematics, without any training.

In: tensors of images or features. Out: features, logits, transported images, losses. Start with `backbone.py` for the
network of the classifier, `generator.py` for that of a mechanism, and `losses.py` for the equations.
"""
