"""RASA thresholds."""

from gprune.views.reliability import page

page.show()
