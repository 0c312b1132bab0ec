"""Launch and follow runs."""

from gprune.app.pages.jobs import page

page.show()
