"""Page *Drift*: rank drift (Fig. 1a) and module agreement (Fig. 1b)."""

from gprune.app.pages import drift
from gprune.app.ui import address

address.show({"drift": drift.show_ranks, "agreement": drift.show_agreement})
