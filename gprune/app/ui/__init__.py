"""What all pages share: the frame around them, cards, loaded results, live work, and the look of charts."""
