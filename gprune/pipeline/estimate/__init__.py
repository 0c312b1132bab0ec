"""Estimates of a study's memory and time before it starts, by formula for every stage, without torch."""

from gprune.pipeline.estimate.forecast import ANYWAY, Forecast, estimate_missing, estimate_study, require_room
