"""The contract of plug-ins, for their authors' own tests: one call each, one sentence for what is wrong.

    from gprune.plugins.testing import check_method, check_metric

    def test_my_metric():
        check_metric(my_package.metric)

A contract is checked on made-up texts and weights of small, odd shapes, in seconds and without a network.
"""

from gprune.plugins.testing.methods import check_method
from gprune.plugins.testing.metrics import check_metric
from gprune.plugins.testing.samples import ContractError
