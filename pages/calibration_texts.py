"""The card of each calibration text; all of them beside each other, and one's own."""

from gprune.app.pages import calibration_data
from gprune.app.ui import address

address.show({"card": calibration_data.show_card, "calibration": calibration_data.show})
