"""Contract checks for plug-in authors' tests; see `gprune.plugins.testing`."""

from gprune.plugins.testing import ContractError, check_method, check_metric

__all__ = ["ContractError", "check_method", "check_metric"]
