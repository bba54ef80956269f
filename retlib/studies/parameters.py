"""What a parameter may be, by types that pydantic checks before any work; every chapter opens with them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import from_json

from retlib.core import notebook_files, runtime
from retlib.core.errors import SettingError, require, require_one_of, shown
from retlib.core.registry import Registry
from retlib.data import datasets

T = TypeVar("T")
MOST = 2**31 - 1  # the largest whole number that everything here counts to


class Settings(BaseModel):
    """Values that are as their types say, with no name beside them; or their JSON, which papermill's -p gives."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _parsed(cls, given: Any) -> Any:
        return from_json(given) if isinstance(given, str) else given


def one_of(registry: Registry) -> AfterValidator:
    """Return the check of a name of a registry; a cell may have registered it."""

    def check(name: str) -> str:
        registry.get(name)
        return name

    return AfterValidator(check)


def _profile(name: str) -> str:
    require_one_of("a profile", name, [notebook_files.EXPLORE, *notebook_files.profiles(runtime.root())])
    return name


def _distinct(values: list) -> list:
    repeated = [value for place, value in enumerate(values) if value in values[:place]]
    require(not repeated, f"{shown(values)} names a value twice")
    return values


Whole = Annotated[int, Field(ge=0, le=MOST)]
Positive = Annotated[int, Field(ge=1, le=MOST)]
Several = Annotated[int, Field(ge=2, le=MOST)]  # a batch: one pair has no negative
Number = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Rate = Annotated[float, Field(ge=1e-7, le=1)]
Share = Annotated[float, Field(ge=0, le=1)]
Text = Annotated[str, Field(min_length=1)]
CollectionName = Annotated[str, one_of(datasets.COLLECTIONS)]
ArticlesName = Annotated[str, one_of(datasets.ARTICLES)]
TextName = Annotated[str, one_of(datasets.TEXTS)]
Some = Annotated[list[T], AfterValidator(_distinct)]  # none of them twice
Many = Annotated[list[T], Field(min_length=1), AfterValidator(_distinct)]  # one at least
Profile = Annotated[str, AfterValidator(_profile)]
Names = Many[str] | str  # "all", a name, or several; `retlib.studies.study.chosen` says which there are


def check(model: type[BaseModel], values: Mapping[str, Any]) -> Any:
    """Return values as a model; `SettingError` says of the first that is wrong what would be right."""
    try:
        return model.model_validate(dict(values))
    except ValidationError as error:
        # A misspelt name first: it says more than that another is absent. Then what lies deepest, of a union's kinds.
        wrong = min(error.errors(), key=lambda each: (each["type"] != "extra_forbidden", -len(each["loc"])))
    # Where a value lies, without what pydantic calls keys and the kinds of a union.
    kinds = "[key]", "str", "constrained-int"
    first, *inner = [each for each in wrong["loc"] if each not in kinds and "(" not in str(each)]
    if wrong["type"] == "extra_forbidden":
        holder = reduce(lambda each, name: each.model_fields[name].annotation, [first, *inner][:-1], model)
        require_one_of(f"a key of {first}" if inner else "a parameter", [first, *inner][-1], holder.model_fields)
    name, value = f"{first}{''.join(f'[{each!r}]' for each in inner)}", shown(wrong["input"])
    require(wrong["type"] != "missing", f"the parameters cell lacks {name}")
    why = str(wrong.get("ctx", {}).get("error") or wrong["msg"])
    _, _, unknown = why.partition(f" = {value} ")  # the place is said here, and once
    is_text = isinstance(wrong["input"], str) and wrong["type"] in ("list_type", "dict_type")
    hint = ", by -y, not by -p" if is_text else ""
    raise SettingError(f"{name} = {value} {unknown}" if unknown else f"{name} = {value}: {why}{hint}")
