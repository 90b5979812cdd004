"""Where jobs run: processes of this machine, a Ray cluster or Slurm.

In: jobs (`Work`: a call, its log and the job that it needs). Out: their states, until all are done or failed.
Start with `launcher.py` (the protocol), then `local.py`.
"""
