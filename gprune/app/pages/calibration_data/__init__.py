"""The page Texts."""
