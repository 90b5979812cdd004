"""Run folders to one HTML page that needs nothing but itself."""

from tcm.report.page import write_report

__all__ = ["write_report"]
