"""The calibration sets."""

from gprune.app.pages.calibration_data import page

page.show()
