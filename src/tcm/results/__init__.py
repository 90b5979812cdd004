"""Finished runs as rows, and rows as tables.

In: run folders of stage 2. Out: a CSV store with one row per run and selection rule, and tables in the paper's layout.
Start with `store.py`. `identity.py` says which runs differ only in the seed; `paper_tables.py` has the paper's numbers.
"""
