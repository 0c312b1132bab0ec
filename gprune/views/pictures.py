"""Every figure of the app by name, for those who draw it without the pages.

Each page declares its own beside what else it draws; importing this module imports them all.
"""

from gprune.views.calibration_data import one_text, pictures
from gprune.views.comparison import pictures as comparison
from gprune.views.flipped_questions import pictures as flipped_questions
from gprune.views.frame.picture import KNOWN, PLACES, options_of, selected
from gprune.views.help import pictures as guide
from gprune.views.inspector import pictures as inspector
from gprune.views.jobs import pictures as jobs
from gprune.views.mask_atlas import pictures as mask_atlas
from gprune.views.module_agreement import pictures as module_agreement
from gprune.views.neuron_map import pictures as neuron_map
from gprune.views.overview import pictures as overview
from gprune.views.pruning_decisions import pictures as pruning_decisions
from gprune.views.rank_drift import pictures as rank_drift
from gprune.views.reliability import pictures as reliability
from gprune.views.speed_export import pictures as speed_export

__all__ = ["KNOWN", "PLACES", "options_of", "selected"]

PAGES = (
    *(overview, rank_drift, module_agreement, reliability, pruning_decisions),
    *(pictures, one_text, inspector, jobs, comparison, flipped_questions, speed_export, guide),
    *(neuron_map, mask_atlas),
)
"""the modules that declare figures"""
