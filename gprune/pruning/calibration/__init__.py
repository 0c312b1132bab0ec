"""One pass of the dense model over a calibration set, and the statistics that every score follows from."""

from gprune.pruning.calibration.collection import collect, collect_strongest, strongest_of
