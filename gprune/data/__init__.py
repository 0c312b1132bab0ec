"""Calibration texts, the demo, and the published figures of the paper."""
