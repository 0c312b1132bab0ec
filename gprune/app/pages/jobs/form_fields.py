"""What the launch form calls the fields of a study, and the keys of their widgets."""

from gprune.app.pages.jobs import comparison_form

LABELS = {
    "model": "Model",
    "primary": "Primary text A",
    "auxiliary": "Auxiliary text B",
    "substitute": "Third text C, for the agreement",
    "metric": "Metric",
    "retention": "Retention",
    "seed": "Seed",
    "methods": "Methods side by side",
    "name": "Name (optional)",
    "calibration.samples": "Sequences of each text",
    "sparsity.epochs": "Epochs",
    "evaluation.texts": "Evaluate on",
    "evaluation.preset": "Window tokens",
    "evaluation.windows": "Windows at most",
    "evaluation.tasks": "Zero-shot tasks",
    "evaluation.limit": "Documents at most",
    "evaluation.task_folder": "Folder with the data of the seven tasks",
    comparison_form.FURTHER: "Further seeds (optional)",
}
"""what the fields are called that are asked for outside of “More settings”"""
KEYS = {
    **{name: f"launch_{name.rpartition('.')[2]}" for name in LABELS},
    "evaluation.texts": "launch_evaluate",
    comparison_form.FURTHER: "launch_seeds",
}
"""keys of their widgets"""


def called(field: str) -> str:
    """What the form calls a field."""
    own = field.rpartition(".")[2].replace("_", " ").capitalize()
    return LABELS.get(field) or f"{own} (More settings)"
