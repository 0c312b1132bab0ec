"""Implement the paper: activation statistics, scores, rank drift, modules, score adaptation, learned sparsity.

``calibration`` collects activation statistics, ``scoring`` computes importance scores from them, ``drift``
compares the ranks on two texts, ``modules`` partitions neurons (BCM), ``rasa`` adapts scores, ``sparsity`` learns
retention (MSL), ``allocation`` computes the masks of baselines, ``repair`` changes the kept weights, ``surgery``
builds the smaller model, and ``recovery`` trains that model with the training loop of ``sparsity``.
"""
