"""The contract of plug-ins, for the tests of their authors: one call each, one sentence for what is wrong.

    from gprune.testing import check_method, check_metric

    def test_my_metric():
        check_metric(my_package.metric)

The contract is checked on made-up texts and weights of small, odd shapes, in seconds and without a network.
"""

from gprune.plugins.testing.contract import check_method, check_metric
from gprune.plugins.testing.samples import ContractError
