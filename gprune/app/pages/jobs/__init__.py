"""The page Runs & export."""
