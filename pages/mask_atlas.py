"""Which units a choice decides."""

from gprune.views.mask_atlas import page

page.show()
