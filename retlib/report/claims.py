"""The claims that a chapter tests, declared beside its systems as contrasts of recorded rows (chapters with claims).

A chapter's cell reads recorded rows alone, so that it says the same without data. Its table `claims` has a line for
each contrast, without a verdict: `retlib.report.ledger` corrects p-values over a whole paper.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from retlib.core import notebook_files, runtime
from retlib.core.errors import DataError, require, require_one_of
from retlib.data.datasets.catalogue import called
from retlib.evaluation import results
from retlib.evaluation.results import Results
from retlib.report import gate
from retlib.report.contrasts import QUESTIONS, Contrast, Kind, Term, collections, test
from retlib.report.papers import papers_table, places

COLUMNS = [
    "claim", "role", "label", "terms", "measure", "data_sets", "collections", "unit", "rows", "margin", "alike",
    "effect", "low", "high", "freedom", "p_for", "p_against", "p_none", "seeds", "questions", "one_seed", "closed",
    "blind", "paper", "encoder", "candidates", "reason",
]  # fmt: skip
TEST, CONDITION = "test", "condition"


class Claims:
    """What a chapter (the notebook whose cell this is) tests of a paper (a key of ``papers.yaml``).

    For profile and source of the rows see `retlib.evaluation.results.load`.
    """

    def __init__(self, paper: str, chapter: str, profile: str, source: str | None = None) -> None:
        self.paper, self.chapter, self.profile = paper, chapter, profile
        known = papers_table("claims").query("paper == @paper and chapter == @chapter").set_index("id")
        self._known, self._places = known, places(paper, profile)
        self._load = cache(lambda name: results.load(name, profile, source))
        self._lines: list[dict[str, Any]] = []

    def system(
        self,
        name: str,
        data_set: str | Sequence[str],
        measure: str = "AP@100",
        chapter: str = "",
        kind: Kind = QUESTIONS,
    ) -> Contrast:
        """Return a recorded system on a data set of the paper, or by its mean over several, to be added and subtracted.

        The rows may be another chapter's, which ``claims.csv`` names in `also`.
        """
        data_sets = (data_set,) if isinstance(data_set, str) else tuple(data_set)
        return Contrast((Term(1.0, chapter or self.chapter, name, data_sets, measure, kind),))

    def test(
        self,
        claim: str,
        *contrasts: Contrast,
        given: Iterable[Contrast] = (),
        one_is_enough: bool = False,
        not_tested: str | Mapping[str, str] = "",
    ) -> None:
        """Test a claim (an id in ``claims.csv`` without the paper's key): each contrast must be above its margin, or
        within it.

        Conditions are `given`: each must be above 0 by itself, or the claim is not tested. If `one_is_enough`, data
        sets repeat one comparison, and one collection may stand for several. `not_tested` is why a claim is not tested,
        whatever the rows say, for all profiles or by profile.
        """
        name = f"{self.paper}-{claim}"
        require_one_of(f"claim that chapter {self.chapter} tests in claims.csv", name, self._known.index)
        try:
            reason = not_tested if isinstance(not_tested, str) else not_tested.get(self.profile, "")
            require(not reason, reason, DataError)
            given = list(given)
            self._check([term for each in (*contrasts, *given) for term in each.terms], name, one_is_enough)
            lines = [self._line(each, TEST) for each in self._distinct(contrasts)]
            lines += [self._line(each, CONDITION) for each in self._distinct(given)]
        except DataError as error:
            lines = [{"role": TEST, "reason": str(error)}]
        self._lines += [{"claim": name, **line} for line in lines]

    @property
    def table(self) -> pd.DataFrame:
        """A line for each contrast, in the columns `COLUMNS`; of what is not tested one with the `reason`."""
        missing = self._known.index.difference([line["claim"] for line in self._lines])
        require(missing.empty, f"claims.csv says that {self.chapter} tests {', '.join(missing)}", DataError)
        table = pd.DataFrame(self._lines).reindex(columns=COLUMNS)
        numbers = ["margin", "effect", "low", "high", "freedom", "p_for", "p_against", "p_none", "seeds", "questions"]
        numbers, flags = [*numbers, "paper", "candidates"], ["alike", "one_seed"]
        texts = table.columns.difference([*numbers, *flags])
        table[texts] = table[texts].astype(object).fillna("")
        table[flags] = table[flags].eq(True)
        return table.astype(dict.fromkeys(numbers, float))

    def _check(self, terms: Iterable[Term], claim: str, one_is_enough: bool) -> None:
        # Data sets for which one collection stands are no sample of several.
        names = dict.fromkeys(name for term in terms for name in term.data_sets)
        here = sorted({called(self._stand(name)) for name in names})
        wrong = f"needs {len(names)} collections, here are {len(here)}: {', '.join(here)}"
        require(one_is_enough or len(here) == len(names), wrong, DataError)
        also = {self.chapter, *self._known.loc[claim, "also"].split()}
        for term in terms:
            require_one_of(f"chapter whose rows {claim} loads, by claims.csv,", term.chapter, also)
            rows, chapter = self._load(term.chapter), term.chapter[:2]
            wanted = f"not run yet at profile {self.profile}: chapter {chapter} would do it"
            require(rows is not None, wanted, DataError)
            known = rows.systems(self._stand(term.data_sets[0]), "test", term.measure)
            missing = f"not run yet: chapter {chapter} would record {term.measure} of {term.system}"
            require(term.kind is not QUESTIONS or term.system in known, missing, DataError)

    def _stand(self, data_set: str) -> str:
        explored = "this is an exploration, and claims are tested at a profile's own parameters"
        at_profile = f"no collection stands for {data_set} at profile {self.profile}"
        wanted = explored if self.profile == notebook_files.EXPLORE else at_profile
        require(data_set in self._places.index, wanted, DataError)
        return self._places.loc[data_set, "collection"]

    def _distinct(self, contrasts: Iterable[Contrast]) -> list[Contrast]:
        # Those of several data sets are one where one collection stands for them.
        def key(contrast: Contrast) -> tuple:
            terms = tuple(term._replace(data_sets=collections(term, self._stand)) for term in contrast.terms)
            return terms, contrast.constant, contrast.margin

        return list({key(each): each for each in reversed(list(contrasts))}.values())[::-1]

    def _line(self, contrast: Contrast, role: str) -> dict[str, Any]:
        outcome = test(contrast, self._load, self._stand)
        (low, high), compared, kind = outcome.comparison.interval(), outcome.comparison, contrast.terms[0].kind
        where = [collections(term, self._stand) for term in contrast.terms]
        terms = [
            {"weight": term.weight, "chapter": term.chapter, "system": term.system, "collections": on,
             "mean": round(float(mean), 4)}
            for term, on, mean in zip(contrast.terms, where, outcome.means, strict=True)
        ]  # fmt: skip
        used = [
            (self._load(term.chapter), term.system, on)
            for term, names in zip(contrast.terms, where, strict=True)
            for on in names
        ]
        measure, margin = contrast.terms[0].measure, contrast.margin or 0.0
        candidates = min(_candidates(*place, measure) for place in used)
        closed, blind = outcome.closed or gate.too_deep(measure, candidates), ""
        if kind.gate and contrast.gated and not closed:
            effect = abs(compared.effect) if kind.rows else 0.0
            large = np.inf if role == CONDITION else max(effect, abs(margin), gate.NOISE)
            ends = [(system, on, gate.ending(rows, system, on)) for rows, system, on in used]
            closed = next(filter(None, (gate.unfit(*place, end, large) for *place, end in ends if end)), "")
            blind = next(filter(None, (_blind(*place, end) for place, (*_, end) in zip(used, ends, strict=True))), "")
        encoders = [encoder(rows.settings().get(system, {})) for rows, system, _ in used if rows.settings()]
        encoders = encoders or [self._declared_encoder(contrast.terms[0].chapter)]
        return {
            "role": role, "label": contrast.label or _label(contrast), "terms": json.dumps(terms), "measure": measure,
            "data_sets": json.dumps(list(dict.fromkeys(name for term in contrast.terms for name in term.data_sets))),
            "collections": json.dumps(list(dict.fromkeys(on for *_, on in used))),
            "unit": "points" if kind.rows else "ratio", "rows": kind.rows, "margin": margin, "alike": contrast.alike,
            "effect": compared.effect, "low": low, "high": high, "freedom": compared.freedom, "p_for": outcome.p_for,
            "p_against": outcome.p_against, "p_none": outcome.p_none, "seeds": compared.seeds,
            "questions": compared.queries, "one_seed": outcome.one_seed, "closed": closed, "blind": blind,
            "paper": contrast.paper, "candidates": candidates if np.isfinite(candidates) else None,
            "encoder": "; ".join(dict.fromkeys(filter(None, encoders))), "reason": "",
        }  # fmt: skip

    def _declared_encoder(self, chapter: str) -> str:
        # Of a chapter whose rows have no settings, by its parameters at the profile.
        known = self.profile in notebook_files.profiles(runtime.root())
        given = notebook_files.at_profile(runtime.root(), self.profile, chapter) if known else {}
        return encoder({"encoder": "transformer", **given}) if "layers" in given else ""


def _label(contrast: Contrast) -> str:
    weights, names = [term.weight for term in contrast.terms], [term.system for term in contrast.terms]
    if contrast.terms[0].kind.rows == "" and weights == [1, -1]:
        return " / ".join(names)
    if weights == [1, -1] and len({term.data_sets for term in contrast.terms}) == 1:
        return " − ".join(names)
    said = " ".join(
        f"{'−' if weight < 0 else '+'} {'' if abs(weight) == 1 else f'{abs(weight):.3g} × '}{term.system}"
        + f" ({' and '.join(term.data_sets)})" * (len({each.data_sets for each in contrast.terms}) > 1)
        for weight, term in zip(weights, contrast.terms, strict=True)
    )
    said += f" − {-contrast.constant:g}" if contrast.constant else ""
    return said.removeprefix("+ ")


def _blind(rows: Results, system: str, collection: str, end: gate.Ending | None) -> str:
    # What the gate cannot see of a system.
    if end is None:
        trained = rows.lines(system, collection).reindex(columns=["steps"])["steps"].notna().any()
        return f"{system} has no learning curve" if trained else ""
    stages = rows.settings().get(system, {}).get("stages", [{}])
    decayed = f"the rate of {system} has decayed to zero; a run with half again as many steps would tell"
    return decayed if stages and stages[-1].get("decay") else ""


def _candidates(rows: Results, system: str, collection: str, measure: str) -> float:
    # The fewest that a system was measured among; infinite where it is unknown. Of curves there are no rows.
    def least(lines: pd.DataFrame) -> float:
        mine = lines[lines["measure"] == measure]
        known = (mine if len(mine) else lines).reindex(columns=["candidates"])["candidates"].dropna()
        return float(known.astype(float).min()) if len(known) else np.inf

    return rows.once(("candidates", measure, system, collection), rows.lines(system, collection), least)


def setting(settings: Mapping[str, Any], name: str) -> Any:
    """Return a setting of a recorded encoder after its last stage; `KeyError` where it has none."""
    stages = [each for each in settings.get("stages", ()) if name in each]
    return {**settings, **(stages[-1] if stages else {})}[name]


def encoder(settings: Mapping[str, Any]) -> str:
    """Return what a system encodes with, from its recorded settings; "" of one that encodes nothing."""
    if settings.get("checkpoint"):
        return str(settings["checkpoint"])
    if settings.get("encoder") == "transformer":
        layers = setting(settings, "layers")
        return f"Transformer, {layers} layer{'s' * (layers != 1)}" if layers else "token embeddings, no layer"
    parts = (encoder(each) for each in settings.values() if isinstance(each, Mapping))
    parts = [*parts, *(encoder(each) for each in settings.get("fused", ()))]
    return settings.get("encoder", "") or "; ".join(dict.fromkeys(filter(None, parts)))
