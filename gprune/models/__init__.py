"""Answers: what is a decoder that can be pruned, where does it come from, and is it still the same one?

``identity`` and ``families`` need no torch and may be imported anywhere; ``decoder``, ``loading`` and
``tiny`` hold live models.
"""
