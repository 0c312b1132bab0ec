"""Models for the tests of texts that a model writes."""

import pytest
import tiny_study


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Models of four heads with as many, two and one groups of keys and values."""
    root = tmp_path_factory.mktemp("models")
    texts = tiny_study.write_texts(root / "texts")
    return {n: tiny_study.write_model(root / str(n), texts, kv_heads=n) for n in (4, 2, 1)}
