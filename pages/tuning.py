"""Page *Tune*: the thresholds of RASA, and the retention."""

from gprune.app.pages import rasa
from gprune.app.ui import address

address.show({"rasa": rasa.show})
