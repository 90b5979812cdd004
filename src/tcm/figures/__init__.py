"""Arrays to matplotlib figures.

In: arrays from `analysis` and `mechanisms`. Out: a `Figure`, written as PNG, SVG or PDF by `svg.py`. Each file draws
one kind of figure. Start with `curves.py`.
"""
