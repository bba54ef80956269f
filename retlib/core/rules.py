"""What a parameter may be: rules, checked before any work."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from retlib.core.errors import require, require_one_of, shown

Rule = Callable[[str, Any], None]


def one_of(valid: Iterable | Callable[[], Iterable]) -> Rule:
    """A value of a fixed set; or of one that a function gives once the rules before this one have passed."""
    known = valid if callable(valid) else tuple(valid)
    return lambda name, value: require_one_of(name, value, known() if callable(known) else known)


def flag(name: str, value: Any) -> None:
    """A rule: True or False."""
    require(isinstance(value, bool), f"{name} = {shown(value)} must be True or False")


def each_of(rule: Rule) -> Rule:
    """A list, not empty and without repetition, whose members each pass `rule`."""

    def check(name: str, value: Any) -> None:
        valid = isinstance(value, list) and len(value) > 0
        as_text = ", which papermill takes from -y, not from -p" if isinstance(value, str) else ""
        require(valid, f"{name} = {shown(value)} must be a list with at least one value{as_text}")
        for member in value:
            rule(name, member)
        valid = all(member not in value[:place] for place, member in enumerate(value))
        require(valid, f"{name} = {shown(value)} names a value twice")

    return check


def some_of(rule: Rule) -> Rule:
    """A list whose members each pass a rule; it may be empty."""
    return lambda name, value: None if value == [] else each_of(rule)(name, value)


def mapping_of(keys: Iterable[str] | None, rule: Rule) -> Rule:
    """A mapping with exactly these keys (any, if None), whose values each pass `rule`."""
    keys = None if keys is None else sorted(keys)

    def check(name: str, value: Any) -> None:
        valid = isinstance(value, dict) and (keys is None or set(keys) == set(value))
        wanted = f" with the keys {', '.join(keys)}" if keys else ""
        require(valid, f"{name} = {shown(value)} must be a mapping{wanted}")
        for key in value:
            text(f"a key of {name}", key)
            rule(f"{name}[{key!r}]", value[key])

    return check


def form(needed: Mapping[str, Rule], others: Mapping[str, Rule]) -> Rule:
    """A mapping with keys that it needs and others that it may have, whose values each pass the rule of their key."""
    known = {**needed, **others}

    def check(name: str, value: Any) -> None:
        keys = f" with the keys {', '.join(needed)}" if needed else ""
        wrong = f"{name} = {shown(value)} must be a mapping{keys}"
        require(isinstance(value, dict), wrong)
        for key in value:  # a misspelt one first: it says more than that another is absent
            require_one_of(f"a key of {name}", key, known)
        absent = [key for key in needed if key not in value]
        require(not absent, f"{wrong}; it lacks {', '.join(absent)}")
        for key in value:
            known[key](f"{name}[{key!r}]", value[key])

    return check


def row_of(*each: Rule) -> Rule:
    """A list of as many members, which pass these rules in their order."""

    def check(name: str, value: Any) -> None:
        valid = isinstance(value, list) and len(value) == len(each)
        require(valid, f"{name} = {shown(value)} must be a list of {len(each)}")
        for rule, member in zip(each, value, strict=True):
            rule(name, member)

    return check


def number(lowest: float, highest: float | None = None, whole: bool = False) -> Rule:
    """A number between two bounds, both allowed; a whole one if asked for. Without the upper, what computers count."""
    most = highest if highest is not None else 2**31 - 1 if whole else sys.float_info.max

    def check(name: str, value: Any) -> None:
        kinds = (int,) if whole else (int, float)
        fits = isinstance(value, kinds) and not isinstance(value, bool)
        valid = fits and lowest <= value <= most
        wanted = f"{'a whole number' if whole else 'a number'} of at least {lowest}"
        wanted += f" and at most {most}" if highest is not None or (fits and value > most) else ""
        require(valid, f"{name} = {shown(value)} must be {wanted}")

    return check


POSITIVE, RATE = number(1, whole=True), number(1e-7, 1)


def text(name: str, value: Any) -> None:
    """A rule: a string that is not empty."""
    require(isinstance(value, str) and value != "", f"{name} = {shown(value)} must be a string")


def name_or_none(name: str, value: Any) -> None:
    """A rule: a string; an empty one for none."""
    require(isinstance(value, str), f"{name} = {shown(value)} must be a name, or empty for none")
