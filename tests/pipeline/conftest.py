"""Texts, a model and questions for the studies of a module."""

import pytest
import tiny_study


@pytest.fixture(scope="module")
def workshop(tmp_path_factory):
    return tiny_study.workshop(tmp_path_factory.mktemp("study"), questions=9)
