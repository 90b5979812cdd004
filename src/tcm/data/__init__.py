"""Images on disk to training batches.

In: two folders of images, or two list files, or the root folder of a benchmark. Out: a `Task`, which is two packed
`ImageStore`s, and a `Stream`, whose `batch(step)` depends on the seed and the step only. Start with `task.py`, then
`stream.py`; `batch.py` is what every learner sees, and `feeding.py` brings what does not fit on the device.
"""
