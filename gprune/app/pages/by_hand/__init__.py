"""Units that a person keeps or removes by hand: the list, what it costs, and sets of it under names.

`edits_card.card(run)` can stand on any page; the tab Mask editor is made of it and of the sets.
"""
