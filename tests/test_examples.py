"""The examples in docstrings give what they say; that of data sets is run in ``tests/data/test_catalogue.py``."""

import doctest
import importlib
import pkgutil

import numpy as np
import pytest

import retlib

MODULES = {each.name for each in pkgutil.walk_packages(retlib.__path__, "retlib.")}


@pytest.mark.parametrize("name", sorted(MODULES - {"retlib.__main__", "retlib.data.datasets"}))
def test_examples_give_what_they_say(name):
    assert doctest.testmod(importlib.import_module(name), extraglobs={"np": np}).failed == 0
