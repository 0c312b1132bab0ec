"""Memory and time of a study before it starts: every stage by formula, without torch."""

from gprune.pipeline.estimate.fit import ANYWAY, TooLarge, Verdict, judge
from gprune.pipeline.estimate.forecast import Forecast, StageNeed, forecast
