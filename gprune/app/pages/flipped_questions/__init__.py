"""The tab Changed answers."""
