"""Methods side by side."""

from gprune.views.comparison import page

page.show()
