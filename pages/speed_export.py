"""Speed, widths, exports and accuracy of the pruned model."""

from gprune.views.speed_export import page

page.show()
