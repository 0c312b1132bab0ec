"""Figure 1a."""

from gprune.views.rank_drift import page

page.show()
