"""Every figure of the app by name, for those who take it without the pages.

Each page declares its own beside what else it draws; this module imports them all, and no Streamlit.
"""

from gprune.app.pages.calibration_data import panels as calibration_data
from gprune.app.pages.comparison import panels as comparison
from gprune.app.pages.decision import panels as decision
from gprune.app.pages.flipped_questions import panels as flipped_questions
from gprune.app.pages.inspector import panels as inspector
from gprune.app.pages.jobs import panels as jobs
from gprune.app.pages.mask_atlas import panels as mask_atlas
from gprune.app.pages.module_agreement import panels as module_agreement
from gprune.app.pages.neuron_map import panels as neuron_map
from gprune.app.pages.overview import panels as overview
from gprune.app.pages.pruning_decisions import panels as pruning_decisions
from gprune.app.pages.rank_drift import panels as rank_drift
from gprune.app.pages.rasa import panels as reliability
from gprune.app.pages.speed_export import panels as speed_export
from gprune.app.ui.panel import KNOWN

__all__ = ["KNOWN", "PAGES"]

PAGES = (
    *(overview, calibration_data, rank_drift, module_agreement, inspector, neuron_map),
    *(pruning_decisions, mask_atlas, reliability, comparison, decision, flipped_questions, speed_export),
    jobs,
)
"""the modules that declare figures, as the app lists their pages"""
