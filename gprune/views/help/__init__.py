"""The page Help."""
