"""What can go wrong, said so that a reader can mend it."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

LONGEST = 500  # letters of a value in a message


class RetlibError(Exception):
    """Base of every error that a user of retlib can cause and can mend."""

    def _render_traceback_(self) -> list[str]:
        """What IPython, and so a notebook and papermill, shows: what was wrong, and not the way to it."""
        return [f"{type(self).__name__}: {self}"]


class SettingError(RetlibError, ValueError):
    """A parameter has an unknown name or an impossible value."""


class DataError(RetlibError):
    """A data file or a collection is absent, damaged or inconsistent."""


def shown(value: object) -> str:
    """A value as a message has it: its representation, cut where it is long, or its kind where it has none."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # of numbers of thousands of digits, of lists within lists without end
        return f"a value of type {type(value).__name__}"
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def require_one_of(name: str, value: object, valid: Iterable) -> None:
    """Raise `SettingError` with the list of valid values unless `value` is one of them."""
    valid = sorted(valid, key=str)
    if value in valid:
        return
    text, names = shown(value).strip("'"), [str(v) for v in valid]
    near = get_close_matches(text, names, n=1) or [name for name in names if text and name.startswith(text)]
    hint = f" Did you mean {near[0]!r}?" if near else ""
    listed = ", ".join(map(str, valid))
    raise SettingError(f"{name} = {shown(value)} is not known.{hint} Valid: {listed}.")


def require_positive(settings: object, *names: str) -> None:
    """Raise `SettingError` for the first of these attributes that is not above 0."""
    for name in names:
        value = getattr(settings, name)
        require(value > 0, f"{name} = {value} must be positive")


def require(condition: bool, message: str, error: type[RetlibError] = SettingError) -> None:
    """Raise `error` with `message` unless `condition` holds."""
    if not condition:
        raise error(message)
