"""What processes tell each other arrives as it was said."""

import numpy as np
import pytest

from gprune.models.distributed.rpc import Order, made, plain
from gprune.system import errors


def test_an_order_arrives_with_its_values_and_arrays():
    arrays = {"ids": np.arange(6, dtype=np.int32).reshape(2, 3)[:, ::2], "none": np.zeros((0, 4))}
    found = Order.decoded(Order("learning", {"text": "Zoë’s\n", "shards": 4}, arrays).encoded().tobytes())
    assert (found.name, found.values) == ("learning", {"text": "Zoë’s\n", "shards": 4})
    for name, array in arrays.items():
        assert found.arrays[name].dtype == array.dtype
        np.testing.assert_array_equal(found.arrays[name], array)


@pytest.mark.parametrize("kind", [errors.NumericsError, errors.SettingsError, errors.MethodError])
def test_an_error_arrives_as_what_it_is(kind):
    found = made(plain(kind("a sentence: do this")).encode())
    assert type(found) is kind and str(found) == "a sentence: do this"


@pytest.mark.parametrize("data", [b'{"kind": "DamagedError", "words": "x"}', b'{"kind": "os", "words": "x"}'])
def test_an_error_of_another_making_is_one_of_ours(data):
    found = made(data)
    assert type(found) is errors.RanksError and str(found) == "x"
