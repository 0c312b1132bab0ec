"""By hand."""

from gprune.views.by_hand import page

page.show()
