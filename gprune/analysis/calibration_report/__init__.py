"""The card of a calibration text: is it good enough, and would another one give another model?

    cards = measure(results, run)              # by letter, from what one pass over each text has kept
    verdicts(cards["A"])                       # questions with their answers
    writing.page(cards["A"])                   # one file that stands alone

Loads neither torch nor a model; Plotly only where figures are made.
"""

from gprune.analysis.calibration_report.card import DEFAULT_SHARE, Against, TextCard
from gprune.analysis.calibration_report.measuring import letter_of, measurable, measure
from gprune.analysis.calibration_report.verdict import Verdict, verdicts
