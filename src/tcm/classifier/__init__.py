"""One run of stage 2: train a method, evaluate it, choose among its models, predict.

In: a method's config and a `Task`. Out: a run folder with `model.safetensors`, `evaluation.json` and predictions. Start
with `train.py`; `load.py` has the `Classifier` of a finished run, `selection.py` the scores that need no target labels.
"""
