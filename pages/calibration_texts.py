"""The card of each calibration text; all of them beside each other, and one's own."""

from gprune.app.pages.calibration_data import page
from gprune.app.ui import places

places.show({"card": page.show_card, "calibration": page.show})
