"""One training loop for both stages, and the folder of a run.

In: a `Learner`, batches and a `RunConfig`. Out: a run folder. A run can be killed at any moment and continued exactly.
Start with `learner.py` (four methods), then read `loop.py`; `run_folder.py` has the files on disk.
"""
