"""What another text changes: ranks of neurons (figure 1a) and modules (figure 1b)."""

from gprune.app.pages import module_agreement, rank_drift
from gprune.app.ui import places

places.show({"drift": rank_drift.show, "agreement": module_agreement.show})
