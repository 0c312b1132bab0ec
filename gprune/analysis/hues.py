"""The colours of the calibration texts, the same in every figure."""

TEXTS = {"A": "#8661C1", "B": "#D55E00", "C": "#8C6D31"}
"""hues by letter"""
