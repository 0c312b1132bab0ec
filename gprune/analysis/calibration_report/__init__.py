"""Calibration card of a text: is the text large enough, and does its choice change the model?

    cards = measure(results, run)              # one card per text, keyed by letter, from stored statistics
    verdicts(cards["A"])                       # questions and their answers
    writing.page(cards["A"])                   # the card as self-contained HTML

The package imports neither torch nor a model, and Plotly only for figures.
"""

from gprune.analysis.calibration_report.card import DEFAULT_SHARE, TextCard, TextComparison
from gprune.analysis.calibration_report.measuring import letter_of, measurable, measure
from gprune.analysis.calibration_report.verdict import Verdict, verdicts
