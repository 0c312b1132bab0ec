"""The tab RASA thresholds."""
