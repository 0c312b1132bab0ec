"""Memory and time of a study before it starts: every stage by formula, without torch."""

from gprune.pipeline.estimate.forecast import ANYWAY, Forecast, estimate_missing, estimate_study, require_room
