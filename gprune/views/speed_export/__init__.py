"""The page Speed & export."""
