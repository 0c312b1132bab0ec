"""What if: the thresholds of RASA, and how much is kept."""

from gprune.app.pages import rasa
from gprune.app.ui import address

address.show({"rasa": rasa.show})
