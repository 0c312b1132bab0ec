"""Figure 1b."""

from gprune.views import module_agreement

module_agreement.show()
