"""What parameters may be, and how a message shows what they are."""

import pytest

from retlib.core import rules
from retlib.core.errors import SettingError, shown


def test_a_long_value_is_cut_and_one_without_a_representation_named_by_its_kind():
    assert shown([1, "a"]) == "[1, 'a']"
    assert len(shown("x" * 100_000)) < 600 and shown("x" * 100_000).startswith("'xxx")
    assert shown(10**5000) == "a value of type int"
    deep: list = []
    for _ in range(100_000):
        deep = [deep]
    assert shown(deep) == "a value of type list"
    with pytest.raises(SettingError, match="n = a value of type int"):
        rules.number(1, whole=True)("n", 10**5000)


@pytest.mark.parametrize("value", [0, 1, 1.0, "True", None])
def test_a_flag_is_true_or_false_and_no_number(value):
    rules.flag("hidden", True)
    with pytest.raises(SettingError, match="hidden = "):
        rules.flag("hidden", value)


def test_numbers_that_are_equal_are_named_twice():
    rules.each_of(rules.number(0))("scales", [1.0, 10.0])
    with pytest.raises(SettingError, match="scales"):
        rules.each_of(rules.number(0))("scales", [1.0, 10.0, 1])


def test_a_misspelt_key_is_named_where_a_needed_one_is_absent_for_it():
    rule = rules.form({"measure": rules.text}, {"set": rules.text})
    rule("sweep", {"measure": "RR@10"})
    with pytest.raises(SettingError, match="'mesure'.* 'measure'"):
        rule("sweep", {"mesure": "RR@10"})
    with pytest.raises(SettingError, match="sweep = .* measure"):
        rule("sweep", {"set": "a"})
    for given, said in (("12", "'12_dual_encoder_losses'"), ("", "chapter = ''")):  # a beginning suggests the name
        with pytest.raises(SettingError, match=said):
            rules.one_of(["11_retrieval_tasks", "12_dual_encoder_losses"])("chapter", given)
