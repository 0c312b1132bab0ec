"""RASA thresholds."""

from gprune.views import reliability

reliability.show()
