"""Shared parts of the pages: the frame around them, cards, loaded results, live work, and the look of charts."""
