"""Figure 1b."""

from gprune.app.pages.module_agreement import page

page.show()
