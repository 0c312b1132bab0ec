"""Modular sparsity learning (MSL), section 3.3: module thresholds under a retention target."""
