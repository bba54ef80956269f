"""Errors that a user can cause and mend, and the checks that raise them (all chapters)."""

from collections.abc import Iterable
from difflib import get_close_matches


class RetlibError(Exception):
    """Base of every error that a user of retlib can cause and can mend."""

    def _render_traceback_(self) -> list[str]:
        # What IPython, and so a notebook and papermill, shows: what was wrong, and not the way to it.
        return [f"{type(self).__name__}: {self}"]


class SettingError(RetlibError, ValueError):
    """A parameter has an unknown name or an impossible value."""


class DataError(RetlibError):
    """A data file or a collection is absent, damaged or inconsistent."""


def short_repr(value: object) -> str:
    """Return a value as messages have it: its representation, at most 500 letters of it."""
    text = repr(value)
    return text if len(text) <= 500 else f"{text[:500]}…"


def require(condition: bool, message: str, error: type[RetlibError] = SettingError) -> None:
    """Raise `error` with `message` unless `condition` holds."""
    if not condition:
        raise error(message)


def require_one_of(name: str, value: object, valid: Iterable) -> None:
    """Raise `SettingError`, with the valid values and the nearest, unless `value` is one of them."""
    if value in (valid := sorted(valid, key=str)):
        return
    text, names = short_repr(value).strip("'"), list(map(str, valid))
    near = get_close_matches(text, names, n=1) or [each for each in names if text and each.startswith(text)]
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise SettingError(f"{name} = {short_repr(value)} is not known.{hint} Valid: {', '.join(names)}.")


def require_positive(settings: object, *names: str) -> None:
    """Raise `SettingError` for the first of these attributes that is not above 0."""
    for name in names:
        require(getattr(settings, name) > 0, f"{name} = {getattr(settings, name)} must be positive")
