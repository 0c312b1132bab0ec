"""The app's figures by name, for pages, slides, reports and the Python API; nothing here imports Streamlit.

Each place of the app has a module here. A page imports its own; only `load_figures` imports all of them.
"""

from gprune.app.ui.panel import KNOWN, PanelFunction


def load_figures() -> dict[str, PanelFunction[...]]:
    """Import every module that declares figures, and return the figures by name."""
    import gprune.app.figures.calibration_data
    import gprune.app.figures.inspector
    import gprune.app.figures.mask_atlas
    import gprune.app.figures.module_agreement
    import gprune.app.figures.neuron_map
    import gprune.app.figures.overview
    import gprune.app.figures.pruning_decisions
    import gprune.app.figures.rank_drift
    import gprune.app.pages.comparison.panels
    import gprune.app.pages.decision.panels
    import gprune.app.pages.flipped_questions.panels
    import gprune.app.pages.jobs.panels
    import gprune.app.pages.rasa.panels
    import gprune.app.pages.speed_export.panels  # noqa: F401

    return KNOWN
