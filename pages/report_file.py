"""Chosen figures of a run in one file."""

from gprune.app.report import page

page.show()
