"""The app's figures by name, for pages, slides, reports and the Python API; no module here imports Streamlit.

Each page with figures has a module here and imports only that module. `load_figures` imports all modules.
"""

from gprune.app.ui.panel import KNOWN, PanelFunction


def load_figures() -> dict[str, PanelFunction[...]]:
    """Import every module that declares figures, and return the figures by name."""
    import gprune.app.figures.calibration_data
    import gprune.app.figures.comparison
    import gprune.app.figures.drift
    import gprune.app.figures.experts
    import gprune.app.figures.flipped_questions
    import gprune.app.figures.jobs
    import gprune.app.figures.masks
    import gprune.app.figures.neurons
    import gprune.app.figures.overview
    import gprune.app.figures.rasa
    import gprune.app.figures.speed_export  # noqa: F401

    return KNOWN
