"""Analysis of finished runs: embeddings, activation maps, cost, curves over seeds.

In: run folders. Out: plain arrays and numbers, which `figures` draws. Start with `load_runs.py`.
"""
