"""RASA thresholds."""

from gprune.app.pages.rasa import page

page.show()
