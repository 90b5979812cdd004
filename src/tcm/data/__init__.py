"""Images on disk to training batches.

In: two folders (or lists, or a benchmark's root) of images. Out: `Task`, two packed `ImageStore`s, and `Stream`, whose
`batch(step)` is a function of the seed and the step. Start with `task.py`, then `stream.py`; `batch.py` is what every
learner sees: it has no field for target labels.
"""
