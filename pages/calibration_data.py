"""The calibration sets."""

from gprune.views.calibration_data import page

page.show()
