"""Speed, widths, exports and accuracy of the pruned model."""

from gprune.views import speed_export

speed_export.show()
