"""What the words mean, on the run at hand."""

from gprune.app.pages.help import page

page.show()
