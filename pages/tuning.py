"""What if: the thresholds of RASA, and how much is kept."""

from gprune.app.pages.rasa import page as rasa
from gprune.app.pages.rasa import retention_page as retention
from gprune.app.ui import places

places.show({"rasa": rasa.show, "retention": retention.show})
