"""Run folders to one self-contained HTML page.

In: run folders of either stage. Out: `index.html`. Start with `page.py`; `view.py` collects what the templates show.
"""

from tcm.report.page import write_report

__all__ = ["write_report"]
