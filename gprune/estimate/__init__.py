"""What a study will take, before it starts: memory and time of every stage, by arithmetic, without torch."""

from gprune.estimate.forecast import Forecast, StageNeed, forecast
from gprune.estimate.verdict import ANYWAY, TooLarge, Verdict, judged

__all__ = ["ANYWAY", "Forecast", "StageNeed", "TooLarge", "Verdict", "forecast", "judged"]
