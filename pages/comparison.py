"""Methods side by side."""

from gprune.app.pages.comparison import page

page.show()
