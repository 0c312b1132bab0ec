"""What the pages are called, by the package that draws them: in the navigation and in reports."""

TOOL = "GPrune Studio"
PURPOSE = (
    "see which neurons of a language model change importance with the calibration text, adjust the RASA "
    "thresholds, prune, and compare the result with other methods"
)
"""what the tool is for, after its name"""

NAMES = {
    "overview": "Overview",
    "rank_drift": "Rank drift",
    "module_agreement": "Module agreement",
    "rasa": "RASA thresholds",
    "pruning_decisions": "Pruning decisions",
    "inspector": "Inspector",
    "neuron_map": "Neuron map",
    "mask_atlas": "Mask atlas",
    "by_hand": "Mask editor",
    "text_lens": "Text lens",
    "calibration_data": "Calibration data",
    "jobs": "Launch & jobs",
    "comparison": "Compare",
    "flipped_questions": "Changed answers",
    "report": "Report",
    "speed_export": "Speed & export",
    "help": "Help",
}
