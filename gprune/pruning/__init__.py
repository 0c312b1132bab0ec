"""The paper: statistics of a text, scores, rank drift, modules, score adaptation, learned sparsity.

``calibration`` collects statistics, ``scoring`` makes importance scores of them, ``drift`` compares two
texts, ``modules`` partitions neurons (BCM), ``rasa`` adapts scores, ``sparsity`` learns retention (MSL),
``allocation`` holds the baselines' own decisions, ``repair`` changes the weights that stay, ``surgery``
makes the model physically smaller, and ``recovery`` trains that one on, in the steps of ``sparsity``.
"""
