"""Speed, widths, exports and accuracy of the pruned model."""

from gprune.app.pages.speed_export import page

page.show()
