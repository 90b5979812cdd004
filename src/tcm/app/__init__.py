"""Finished runs as a page in the browser and a JSON API: what `tcm app` serves.

In: folders of finished runs, images that a user uploads, labels that a user gives. Out: predictions, where a model
looks, counterfactuals, nearest source images, and labels on disk for an audit. Start with `server.py`; `api.py` has the
addresses, `guard.py` what is refused, `explain.py` what is computed for an image, `static` the page.
"""
