"""The page Changed answers."""
