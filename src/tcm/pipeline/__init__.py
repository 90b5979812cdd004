"""Two folders to a chosen classifier: what `tcm fit` does.

In: a `FitConfig`. Out: a folder with the runs of all stages, `fit.json`, `predictions.csv` and `model.safetensors`.
Start with `fit.py`; `plan.py` has the defaults that depend on the images and the device, `preflight.py` all that is
tried before the first step.
"""
