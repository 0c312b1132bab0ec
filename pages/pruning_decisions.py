"""Figure 3."""

from gprune.views import pruning_decisions

pruning_decisions.show()
