"""What the pages are called, by the package that draws them: in the navigation and in reports."""

NAMES = {
    "overview": "Overview",
    "rank_drift": "Rank drift",
    "module_agreement": "Module agreement",
    "rasa": "RASA thresholds",
    "pruning_decisions": "Pruning decisions",
    "inspector": "Inspector",
    "neuron_map": "Neuron map",
    "mask_atlas": "Mask atlas",
    "by_hand": "By hand",
    "text_lens": "Text lens",
    "calibration_data": "Calibration data",
    "jobs": "Launch & jobs",
    "comparison": "Compare",
    "flipped_questions": "Flipped questions",
    "report": "Report",
    "speed_export": "Speed & export",
    "help": "Help",
}
