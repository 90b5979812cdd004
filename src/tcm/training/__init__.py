"""One training loop for both stages, and the folder in which a run lives.

In: a `Learner`, batches, a `RunConfig`. Out: a run folder that can be killed at any moment and continued exactly. Start
with `learner.py` (four methods), then `loop.py`; `run_folder.py` is what is on disk.
"""
