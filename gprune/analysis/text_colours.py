"""The colours of the calibration texts, the same in every figure."""

TEXTS = {"A": "#8661C1", "B": "#D55E00", "C": "#8C6D31"}
"""hues by letter"""
MODULES = ("#B100FF", "#C40000", "#27B1C4", "#EB8927", "#4E6289")
"""hues of modules: as many as every eye tells apart on light and dark ground; beyond them symbols tell"""
