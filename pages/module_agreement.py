"""Figure 1b."""

from gprune.views.module_agreement import page

page.show()
