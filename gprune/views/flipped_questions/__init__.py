"""The page Flipped questions."""
