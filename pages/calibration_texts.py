"""Page *Texts*: the calibration card of each text, and all texts side by side."""

from gprune.app.pages import calibration_data
from gprune.app.ui import address

address.show({"card": calibration_data.show_card, "calibration": calibration_data.show})
