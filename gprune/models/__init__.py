"""Models that can be pruned: find, check, load and fingerprint them.

``identity`` and ``families`` need no torch and may be imported anywhere; ``decoder``, ``loading`` and
``tiny`` hold live models.
"""
