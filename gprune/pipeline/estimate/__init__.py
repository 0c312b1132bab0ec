"""Memory and time of a study before it starts: every stage by formula, without torch."""

from gprune.pipeline.estimate.forecast import ANYWAY, Forecast, StageNeed, TooLarge, Verdict, forecast, judge
