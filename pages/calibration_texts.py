"""The calibration sets, and one's own text."""

from gprune.app.pages.calibration_data import page
from gprune.app.ui import places

places.show({"calibration": page.show})
