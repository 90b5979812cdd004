"""Run folders to one HTML page that needs nothing but itself.

In: run folders of either stage. Out: `index.html`. Start with `page.py`; `view.py` gathers what the templates show.
"""

from tcm.report.page import write_report

__all__ = ["write_report"]
