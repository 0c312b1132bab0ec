"""Figure 3."""

from gprune.views.pruning_decisions import page

page.show()
