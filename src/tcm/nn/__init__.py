"""Networks and mathematics, without any training.

In: tensors of images or features. Out: features, logits, transported images, losses. Start with `backbone.py` for the
classifier's network, `generator.py` for a mechanism's, and `losses.py` for the equations.
"""
