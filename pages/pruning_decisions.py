"""Figure 3."""

from gprune.app.pages.pruning_decisions import page

page.show()
