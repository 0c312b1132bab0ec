"""Launch and follow runs."""

from gprune.views.jobs import page

page.show()
