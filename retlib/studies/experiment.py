"""The desk of a notebook: its parameters checked, its results recorded, its records read (all chapters).

A notebook opens an `Experiment` and asks it for everything that costs time. When its parameter `source` is "run" the
experiment computes and records; when it is "reference" it gives what is recorded, so that the same cells draw the same
page in seconds, without data.
"""

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import reduce
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

import pandas as pd
from IPython import get_ipython
from IPython.display import HTML
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic_core import from_json

from retlib.core import notebook_files, runtime
from retlib.core.errors import DataError, SettingError, require, require_one_of, short_repr
from retlib.core.history import Cost
from retlib.data import datasets
from retlib.data.collection import Collection
from retlib.evaluation import results
from retlib.evaluation.measures import evaluate_once, held_out
from retlib.evaluation.results import Results
from retlib.report import tables
from retlib.report.ledger import Claims

T = TypeVar("T")
MOST = 2**31 - 1  # the largest whole number that everything here counts to


class Settings(BaseModel):
    """Values that are as their types say, with no name beside them."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


def validator(check: Callable[[Any], object]) -> AfterValidator:
    """Return what leaves a value as it is, unless `check` raises `SettingError`."""
    return AfterValidator(lambda value: (check(value), value)[1])


def _profile(name: str) -> None:
    require_one_of("a profile", name, [notebook_files.EXPLORE, *notebook_files.profiles(runtime.root())])


def _distinct(values: list) -> None:
    repeats = any(value in values[:place] for place, value in enumerate(values))
    require(not repeats, f"{short_repr(values)} names a value twice")


Natural = Annotated[int, Field(ge=0, le=MOST)]
Positive = Annotated[int, Field(ge=1, le=MOST)]
TwoOrMore = Annotated[int, Field(ge=2, le=MOST)]  # a batch: one pair has no negative
NonNegative = Annotated[float, Field(ge=0)]
PositiveNumber = Annotated[float, Field(gt=0)]
Rate = Annotated[float, Field(ge=1e-7, le=1)]
Share = Annotated[float, Field(ge=0, le=1)]
Text = Annotated[str, Field(min_length=1)]
CollectionName = Annotated[str, validator(datasets.COLLECTIONS.get)]  # one that a cell registered, too
ArticlesName = Annotated[str, validator(datasets.ARTICLES.get)]
TextName = Annotated[str, validator(datasets.TEXTS.get)]
Distinct = Annotated[list[T], validator(_distinct)]
NonEmpty = Annotated[list[T], Field(min_length=1), validator(_distinct)]
Profile = Annotated[str, validator(_profile)]
Names = NonEmpty[str] | str  # "all", a name, or several; `retlib.studies.study.select` says which there are


def check(model: type[BaseModel], values: Mapping[str, Any]) -> Any:
    """Return values as a model; `SettingError` says of the first that is wrong what would be right."""
    try:
        return model.model_validate(dict(values))
    except ValidationError as error:
        # A misspelt name first: it says more than that another is absent. Then what lies deepest, of a union's kinds.
        wrong = min(error.errors(), key=lambda each: (each["type"] != "extra_forbidden", -len(each["loc"])))
    require(wrong["type"] != "missing", f"{wrong['loc'][-1]} is missing")
    place, inside = [], dict(values)
    for each in wrong["loc"]:
        with suppress(LookupError, TypeError, ValueError):  # of a union pydantic names the kinds, too
            inside = inside[each]
            place.append(each)
    if wrong["type"] == "extra_forbidden":
        holder = reduce(lambda each, name: each.model_fields[name].annotation, place[:-1], model)
        require_one_of(f"a key of {place[0]}" if place[1:] else "a parameter", place[-1], holder.model_fields)
    name, value = f"{place[0]}{''.join(f'[{each!r}]' for each in place[1:])}", short_repr(wrong["input"])
    if wrong["type"] == "literal_error":
        require_one_of(name, wrong["input"], re.findall("'(.*?)'", wrong["ctx"]["expected"]))
    why = str(wrong.get("ctx", {}).get("error") or wrong["msg"])
    _, _, unknown = why.partition(f" = {value} ")  # the place is said here, and once
    is_text = isinstance(wrong["input"], str) and wrong["type"] in ("list_type", "dict_type")
    hint = ", by -y, not by -p" if is_text else ""
    raise SettingError(f"{name} = {value} {unknown}" if unknown else f"{name} = {value}: {why}{hint}")


class Common(Settings):
    """What every notebook has."""

    profile: Profile
    seeds: NonEmpty[Natural]
    source: Literal["run", "reference"]


def _parameters(namespace: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    # The globals that may be parameters. The first time these are all plain values, since papermill injects a misspelt
    # name like any other, but for constants in capitals; when the cell runs again, those of `names`.
    hidden = getattr(get_ipython(), "user_ns_hidden", ())  # what IPython itself puts there
    if "_parameters_checked" not in namespace:
        names = [each for each in namespace if each not in hidden and not each.startswith("_") and not each.isupper()]
    values = {name: namespace[name] for name in names if name in namespace}
    values |= {name: each.model_dump(exclude_unset=True) for name, each in values.items() if isinstance(each, Settings)}
    if isinstance(recipe := values.get("recipe"), str):  # as papermill's -p gives it
        try:
            values["recipe"] = from_json(recipe)
        except ValueError as error:
            raise SettingError(f'recipe = {short_repr(recipe)} is no JSON, as {{"layers": 2}} is ({error})') from error
    return {name: each for name, each in values.items() if isinstance(each, str | int | float | list | dict | None)}


def _flat(parameters: Settings) -> dict[str, Any]:
    values = parameters.model_dump()
    return values | values.pop("recipe", {})


class Outcome(NamedTuple):
    """What a system produced on one collection with one seed."""

    run: pd.DataFrame  # as `retlib.retrieval.runs.make_run` returns it
    parameters: Mapping[str, Any]  # the system's settings, recorded beside its results
    cost: Cost = Cost()
    candidates: int | None = None  # how many there were, if not all of the collection


class Experiment:
    """A notebook's desk, made of its name, its ``globals()``, its kind of recipe, and the types of its parameters.

    It is `live` in a run; otherwise recorded results are shown. `parameters` are flat: those of the recipe stand among
    them. What a run records is written by `record_claims`; a chapter that tests no claim ends with `save`.
    """

    def __init__(self, name: str, namespace: dict[str, Any], recipe: type | None = None, **types: Any) -> None:
        types |= {"recipe": recipe} if recipe else {}
        model = create_model("Parameters", __base__=Common, **{each: (of, ...) for each, of in types.items()})
        self._written = _parameters(namespace, model.model_fields)  # as a sweep knows them, too
        given = check(model, self._written)
        namespace["_parameters_checked"] = True
        self.name, self.profile, self.live = name, given.profile, given.source == "run"
        runtime.set_threads()
        runtime.note.cache_clear()  # a page that runs again says it again
        if shell := get_ipython():  # tables are shown whole, without row numbers, which name nothing
            shell.display_formatter.formatters["text/html"].for_type(pd.DataFrame, tables.as_html)
        root, expected = runtime.root(), given
        if self.profile in notebook_files.profiles(root) and name in notebook_files.names(root):
            own = given.model_dump(include={*Common.model_fields})
            expected = check(model, notebook_files.at_profile(root, self.profile, name) | own)
        if self.live:
            self.environment, self.results = runtime.environment(), Results()
            here, there = _flat(given), _flat(expected)
            # Of other parameters than a profile's the rows would be judged as the profile's; seeds may differ.
            for each in [each for each in there if here[each] != there[each] and not each.endswith("seeds")][:1]:
                differs = f"{each} is {here[each]!r}, and {there[each]!r} at profile {self.profile!r}"
                runtime.note(f"{differs}: recorded as an exploration, apart from the profile's rows.")
                self.profile = notebook_files.EXPLORE
            if self.profile == notebook_files.EXPLORE:  # which is not one choice of parameters
                self.environment["given"] = results.as_json(here)
        else:
            recorded = results.load(name, self.profile, source="reference")
            wrong = f"no reference results of {name} at profile {self.profile!r}: set profile to one that has them"
            require(recorded is not None, wrong, DataError)
            self.environment, self.results = {}, recorded
            # What the page shows is what was recorded, whatever this page was asked for.
            seeds = sorted(int(seed) for seed in recorded.rows["seed"].unique())
            given = expected.model_copy(update={"seeds": seeds})
            namespace |= {each: getattr(given, each) for each in types}
        self.parameters, self.recipe = _flat(given), getattr(given, "recipe", None)

    def load(self, name: str) -> Collection | None:
        """Return a collection; None on a reference page, which needs no data."""
        return datasets.load(name) if self.live else None

    def measure(
        self, system: str, test: Collection, seed: int, make: Outcome | Callable[[], Outcome], measures: Sequence[str]
    ) -> None:
        """Record an outcome on test queries, by query too; and the time of making it, where `make` does that."""
        if not self.live:
            return
        queries, qrels = held_out(test, "test")
        with runtime.Stopwatch() as watch:
            outcome = make() if callable(make) else make
        values = evaluate_once(outcome.run, qrels, measures)
        clusters = queries["cluster"] if "cluster" in queries else pd.Series(queries.index, index=queries.index)
        self.results.add_queries(test.name, "test", system, seed, values, clusters)
        self.record_curve(system, test.name, seed, outcome.cost)
        wall, count = round(watch.seconds, 3) if callable(make) else None, outcome.candidates or len(test.documents)
        details = {"parameters": results.as_json(outcome.parameters), "steps": outcome.cost.steps}
        details |= {"seconds": outcome.cost.seconds, "wall": wall, "queries": values["query_id"].nunique()}
        data = results.as_json({"fingerprint": test.fingerprint, **test.provenance, **test.facts})
        for measure, value in values.groupby("measure", sort=False)["value"].mean().items():
            self.record(system, test.name, str(measure), value, seed, **details, candidates=count, data=data)

    def record_curve(self, system: str, collection: str, seed: int, cost: Cost) -> None:
        """Record what validation saw of a training's last stage in the table `learning`, in points of 100."""
        lines = [(system, collection, int(seed), step, 100 * score, step == cost.steps) for step, score in cost.curve]
        if self.live and lines:
            columns = ["system", "collection", "seed", "step", "score", "kept"]
            self.results.add_lines("learning", pd.DataFrame(lines, columns=columns), columns[:3])

    def record(
        self, system: str, collection: str, measure: str, value: float, seed: int, split: str = "test", **details: Any
    ) -> None:
        """Record one number that has no values by query (a time, a size, a count)."""
        place = {"experiment": self.name, "system": system, "collection": collection, "split": split}
        row = {"measure": measure, "value": float(value), "seed": int(seed), "profile": self.profile, **details}
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        here = {"peak_memory": runtime.peak_memory(), "recorded": now, **self.environment}
        if self.live:
            self.results.add_row(**place, **row, **here)

    def table(self, name: str, make: Callable[[], pd.DataFrame]) -> pd.DataFrame:
        """Return a small table that the page needs: made and recorded by a run, else as recorded."""
        if self.live:
            self.results.tables[name] = make().reset_index(drop=True)
        require(name in self.results.tables, f"the reference results of {self.name} lack the table {name!r}", DataError)
        return self.results.tables[name].copy()  # a page may write into it what is not to be recorded

    def claims(self, paper: str) -> Claims:
        """Return the claims of a paper that this chapter tests, of its rows as they are recorded now."""
        self.save()
        return Claims(paper, self.name, self.profile, None if self.live else "reference", self.parameters)

    def record_claims(self, tested: Claims) -> HTML:
        """Record the table `claims` beside the rows of a run, and return it for the page."""
        self.results.tables["claims"] = table = tested.table
        self.save()
        return tables.chapter_claims(table)

    def save(self) -> None:
        """Write a run's results in the place of those of the run before; of an exploration, with these parameters."""
        if self.live:
            self.results.save(results.own_folder(self.profile, self.name, self._written))
