"""Chosen figures of a run in one file."""

from gprune.views.report import page

page.show()
