"""What comes with the package or from people: calibration texts, the demo, the paper's published figures."""
