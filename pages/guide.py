"""What the words mean, on the run at hand."""

from gprune.views.help import page

page.show()
