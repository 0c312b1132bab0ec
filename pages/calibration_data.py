"""The calibration sets."""

from gprune.views import calibration_data

calibration_data.show()
