"""What a study will take, before it starts: memory and time of every stage, by arithmetic, without torch."""

from gprune.pipeline.estimate.fit import ANYWAY, TooLarge, Verdict, judged
from gprune.pipeline.estimate.forecast import Forecast, StageNeed, forecast
