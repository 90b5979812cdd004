"""Finished runs as rows, and rows as tables.

In: run folders of stage 2. Out: a CSV store with one row per run and selection rule, and tables in the paper's layout.
Start with `store.py`; `paper_tables.py` holds the printed figures.
"""
