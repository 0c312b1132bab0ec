"""The report: chosen figures of a run as one file that stands alone."""
