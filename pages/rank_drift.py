"""Figure 1a."""

from gprune.views import rank_drift

rank_drift.show()
