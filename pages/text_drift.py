"""What another text changes: ranks of neurons (figure 1a) and modules (figure 1b)."""

from gprune.app.pages import rank_drift
from gprune.app.pages.module_agreement import page as agreement
from gprune.app.ui import places

places.show({"drift": rank_drift.show, "agreement": agreement.show})
