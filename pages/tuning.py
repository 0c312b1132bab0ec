"""What if: the thresholds of RASA, single units, and how much is kept."""

from gprune.app.pages.by_hand import page as by_hand
from gprune.app.pages.rasa import page as rasa
from gprune.app.pages.rasa import retention_page as retention
from gprune.app.ui import places

places.show({"rasa": rasa.show, "byhand": by_hand.show, "retention": retention.show})
