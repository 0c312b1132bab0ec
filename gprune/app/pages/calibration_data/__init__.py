"""The page Calibration data."""
