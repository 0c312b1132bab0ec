"""Calibration card of a text: is the text large enough, and does its choice change the model?

    cards = measure(results, run)              # by letter, from the stored statistics of each text
    verdicts(cards["A"])                       # questions and answers
    writing.page(cards["A"])                   # self-contained HTML

The package imports neither torch nor a model, and Plotly only for figures.
"""

from gprune.analysis.calibration_report.card import DEFAULT_SHARE, Against, TextCard
from gprune.analysis.calibration_report.measuring import letter_of, measurable, measure
from gprune.analysis.calibration_report.verdict import Verdict, verdicts
