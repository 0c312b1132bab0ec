"""Figure 1a."""

from gprune.app.pages.rank_drift import page

page.show()
