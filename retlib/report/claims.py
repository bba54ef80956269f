"""The claims that a chapter tests, declared beside its systems as contrasts of recorded rows (chapters with claims).

A chapter's cell reads recorded rows alone, so that it says the same without data. Its table `claims` has a line for
each contrast, without a verdict: `retlib.report.ledger` corrects p-values over a whole paper.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd

from retlib.core.errors import DataError, require, require_one_of
from retlib.core.notebook_files import EXPLORE
from retlib.data.datasets.catalogue import called
from retlib.evaluation import results
from retlib.evaluation.results import Results
from retlib.report import gate
from retlib.report.contrasts import QUESTIONS, Contrast, Kind, Term, test
from retlib.report.papers import papers_table, places

TEST, CONDITION = "test", "condition"
EMPTY = {
    "claim": "", "role": TEST, "label": "", "terms": "", "measure": "", "data_sets": "", "collections": "", "unit": "",
    "rows": "", "margin": np.nan, "alike": False, "effect": np.nan, "low": np.nan, "high": np.nan, "freedom": np.nan,
    "p_for": np.nan, "p_against": np.nan, "p_none": np.nan, "seeds": np.nan, "questions": np.nan, "one_seed": False,
    "closed": "", "blind": "", "paper": np.nan, "encoder": "", "candidates": np.nan, "reason": "",
}  # fmt: skip
COLUMNS = [*EMPTY]


class Claims:
    """What a chapter (the notebook whose cell this is) tests of a paper (a key of ``papers.yaml``).

    For profile and source of the rows see `retlib.evaluation.results.load`. The `parameters` are the chapter's: they
    tell the encoder where rows have no settings.
    """

    def __init__(
        self,
        paper: str,
        chapter: str,
        profile: str,
        source: str | None = None,
        parameters: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        self._encoder = encoder({"encoder": "transformer", **parameters}) if "layers" in parameters else ""
        self.paper, self.chapter, self.profile = paper, chapter, profile
        self._known = papers_table("claims").query("paper == @paper and chapter == @chapter").set_index("id")
        self._places = places(paper, profile)["collection"]
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
            roles = {TEST: list(contrasts), CONDITION: list(given)}
            self._check([term for role in roles.values() for each in role for term in each.terms], name, one_is_enough)
            lines = [self._line(each, role) for role, several in roles.items() for each in self._distinct(several)]
        except DataError as error:
            lines = [{"reason": str(error)}]
        self._lines += [EMPTY | {"claim": name} | each for each in lines]

    @property
    def table(self) -> pd.DataFrame:
        """A line for each contrast, in the columns `COLUMNS`; of what is not tested one with the `reason`."""
        missing = self._known.index.difference([line["claim"] for line in self._lines])
        require(missing.empty, f"claims.csv says that {self.chapter} tests {', '.join(missing)}", DataError)
        return pd.DataFrame(self._lines, columns=COLUMNS)

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
            require(rows, f"not run yet at profile {self.profile}: chapter {chapter} would do it", DataError)
            known = rows.systems(self._stand(term.data_sets[0]), "test", term.measure)
            missing = f"not run yet: chapter {chapter} would record {term.measure} of {term.system}"
            require(term.kind is not QUESTIONS or term.system in known, missing, DataError)

    def _stand(self, data_set: str) -> str:
        explored = "this is an exploration, and claims are tested at a profile's own parameters"
        at_profile = f"no collection stands for {data_set} at profile {self.profile}"
        wrong = explored if self.profile == EXPLORE else at_profile
        require(data_set in self._places, wrong, DataError)
        return self._places[data_set]

    def _distinct(self, contrasts: Sequence[Contrast]) -> list[Contrast]:
        # Those of several data sets are one where one collection stands for them.
        def key(contrast: Contrast) -> tuple:
            terms = tuple(term._replace(data_sets=term.collections(self._stand)) for term in contrast.terms)
            return terms, contrast.constant, contrast.margin

        return list({key(each): each for each in contrasts[::-1]}.values())[::-1]

    def _line(self, contrast: Contrast, role: str) -> dict[str, Any]:
        outcome, kind, margin = test(contrast, self._load, self._stand), contrast.terms[0].kind, contrast.margin or 0.0
        (low, high), compared, measure = outcome.comparison.interval(), outcome.comparison, contrast.terms[0].measure
        places = [term.collections(self._stand) for term in contrast.terms]
        terms = [
            {"weight": term.weight, "chapter": term.chapter, "system": term.system, "collections": on,
             "mean": round(float(mean), 4)}
            for term, on, mean in zip(contrast.terms, places, outcome.means, strict=True)
        ]  # fmt: skip
        used = [(self._load(term["chapter"]), term["system"], on) for term in terms for on in term["collections"]]
        candidates = min(_candidates(*place, measure) for place in used)
        closed, blind = outcome.closed or gate.too_deep(measure, candidates), ""
        if kind.gate and contrast.gated and not closed:
            effect = abs(compared.effect) if kind.rows else 0.0
            large = np.inf if role == CONDITION else max(effect, abs(margin), gate.NOISE)
            closed = next(filter(None, (gate.unfit(*place, large) for place in used)), "")
            blind = next(filter(None, (gate.blind(*place) for place in used)), "")
        encoders = [encoder(rows.settings().get(system, {})) for rows, system, _ in used if rows.settings()]
        return {
            "role": role, "label": contrast.label or _label(contrast), "terms": json.dumps(terms), "measure": measure,
            "data_sets": json.dumps(list(dict.fromkeys(name for term in contrast.terms for name in term.data_sets))),
            "collections": json.dumps(list(dict.fromkeys(on for *_, on in used))),
            "unit": "points" if kind.rows else "ratio", "rows": kind.rows, "margin": margin, "alike": contrast.alike,
            "effect": compared.effect, "low": low, "high": high, "freedom": float(compared.freedom),
            "p_for": outcome.p_for, "p_against": outcome.p_against, "p_none": outcome.p_none,
            "seeds": float(compared.seeds), "questions": float(compared.queries), "one_seed": outcome.one_seed,
            "closed": closed, "blind": blind, "paper": np.nan if contrast.paper is None else contrast.paper,
            "encoder": "; ".join(dict.fromkeys(filter(None, encoders or [self._encoder]))),
            "candidates": candidates if np.isfinite(candidates) else np.nan,
        }  # fmt: skip


def _label(contrast: Contrast) -> str:
    terms = contrast.terms
    if not terms[0].kind.rows and [term.weight for term in terms] == [1, -1]:
        return " / ".join(term.system for term in terms)
    several = len({term.data_sets for term in terms}) > 1
    parts = [
        f"{'−' if term.weight < 0 else '+'} {f'{abs(term.weight):.3g} × '.removeprefix('1 × ')}{term.system}"
        + (f" ({' and '.join(term.data_sets)})" if several else "")
        for term in terms
    ]
    parts += [f"− {-contrast.constant:g}"] if contrast.constant else []
    return " ".join(parts).removeprefix("+ ")


def _candidates(rows: Results, system: str, collection: str, measure: str) -> float:
    # The fewest that a system was measured among; infinite where it is unknown. Of curves there are no rows.
    lines = rows.lines(system, collection).reindex(columns=["measure", "candidates"])
    mine = lines[lines["measure"] == measure]
    return (mine if len(mine) else lines)["candidates"].astype(float).fillna(np.inf).min() if len(lines) else np.inf


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
        return f"Transformer, {layers} layer{'s' if layers != 1 else ''}" if layers else "token embeddings, no layer"
    parts = [each for each in settings.values() if isinstance(each, Mapping)] + [*settings.get("fused", ())]
    return settings.get("encoder", "") or "; ".join(dict.fromkeys(filter(None, map(encoder, parts))))
