"""The page RASA thresholds."""
