"""Who is kept (figure 3), and which units a choice decides."""

from gprune.app.pages import mask_atlas, pruning_decisions
from gprune.app.ui import places

places.show({"decisions": pruning_decisions.show, "atlas": mask_atlas.show})
