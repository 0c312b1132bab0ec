"""A run in half a minute."""

from gprune.app.pages.overview import page

page.show()
