"""Suites: tasks x methods x seeds of a benchmark.

In: a benchmark's name and a `SuiteConfig`. Out: a folder with every run, `results.csv`, tables, figures and a page.
Start with `plan.py` (which runs), then `runner.py` (running them).
"""
