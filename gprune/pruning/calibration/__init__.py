"""Activation statistics of the dense model on calibration texts, from which importance scores are computed."""

from gprune.pruning.calibration.collection import collect, collect_strongest, track_strongest
