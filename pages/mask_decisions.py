"""Who is kept (figure 3), and which units a choice decides."""

from gprune.app.pages import masks
from gprune.app.ui import address

address.show({"decisions": masks.show_decisions, "atlas": masks.show_atlas})
