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

from retlib.core.errors import DataError, require, require_one_of
from retlib.data.datasets.catalogue import called
from retlib.evaluation import results
from retlib.evaluation.results import Results
from retlib.report import gate
from retlib.report.contrasts import QUESTIONS, Contrast, Kind, Term, test
from retlib.report.papers import collections, papers_table

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
        self, paper: str, chapter: str, profile: str, source: str | None = None, parameters: Mapping[str, Any] = {}
    ) -> None:
        self._encoder = encoder({"encoder": "transformer", **parameters}) if "layers" in parameters else ""
        self.paper, self.chapter, self.profile = paper, chapter, profile
        self._ids = papers_table("claims").query("paper == @paper and chapter == @chapter")["id"]
        self._collections = collections(paper, profile)["collection"].to_dict()
        self._load = cache(lambda name: results.load(name, profile, source))
        self._lines: list[dict[str, Any]] = []

    def system(
        self, name: str, data_set: Sequence[str], measure: str = "AP@100", chapter: str = "", kind: Kind = QUESTIONS
    ) -> Contrast:
        """Return a recorded system on a data set of the paper, or by its mean over several, to be added and subtracted.

        The rows may be another chapter's, which ``claims.csv`` names in `also`.
        """
        data_sets, chapter = (data_set,) if isinstance(data_set, str) else tuple(data_set), chapter or self.chapter
        on = tuple(dict.fromkeys(self._collections.get(each, "") for each in data_sets))
        return Contrast((Term(1.0, name, on, measure, kind, self._load(chapter), chapter, data_sets),))

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

        Conditions are `given`: each must be above its margin by itself, or the claim is not tested. If `one_is_enough`,
        data sets repeat one comparison, and one collection may stand for several. `not_tested` is why a claim is not
        tested, whatever the rows say, for all profiles or by profile.
        """
        name = f"{self.paper}-{claim}"
        require_one_of(f"claim that chapter {self.chapter} tests in claims.csv", name, self._ids)
        try:
            reason = not_tested if isinstance(not_tested, str) else not_tested.get(self.profile, "")
            require(not reason, reason, DataError)
            roles = [*((TEST, each) for each in contrasts), *((CONDITION, each) for each in given)]
            self._check([term for _, each in roles for term in each.terms], one_is_enough)
            lines = [self._line(*each) for each in roles]
        except DataError as error:
            lines = [{"reason": str(error)}]
        self._lines += [EMPTY | {"claim": name} | each for each in lines]

    @property
    def table(self) -> pd.DataFrame:
        """A line for each contrast, in the columns `COLUMNS`; of what is not tested one with the `reason`."""
        # Contrasts of several data sets are one where one collection stands for them.
        same = ["claim", "role", "terms", "measure", "effect", "margin", "alike", "closed", "reason"]
        return pd.DataFrame(self._lines, columns=COLUMNS).drop_duplicates(same, ignore_index=True)

    def _check(self, terms: Sequence[Term], one_is_enough: bool) -> None:
        names = dict.fromkeys(name for term in terms for name in term.data_sets)
        absent = next((name for name in names if name not in self._collections), "")
        require(not absent, f"no collection stands for {absent} at profile {self.profile}", DataError)
        # Data sets for which one collection stands are no sample of several.
        here = sorted({called(self._collections[name]) for name in names})
        wrong = f"needs {len(names)} collections, here are {len(here)}: {', '.join(here)}"
        require(one_is_enough or len(here) == len(names), wrong, DataError)
        for term in terms:
            rows, chapter = term.rows, term.chapter[:2]
            require(rows, f"not run yet at profile {self.profile}: chapter {chapter} would do it", DataError)
            missing = f"not run yet: chapter {chapter} would record {term.measure} of {term.system}"
            systems = rows.systems(term.collections[0], "test", term.measure)
            require(not term.kind.by_question or term.system in systems, missing, DataError)

    def _line(self, role: str, contrast: Contrast) -> dict[str, Any]:
        line, terms, margin = test(contrast), contrast.terms, contrast.margin or 0.0
        places, kind = [(term.rows, term.system, on) for term in terms for on in term.collections], terms[0].kind
        candidates = min(_candidates(*place, terms[0].measure) for place in places)
        line["closed"] = line["closed"] or gate.too_deep(terms[0].measure, candidates)
        if kind.gate and contrast.gated and not line["closed"]:
            effect = 0.0 if kind.ratio else abs(line["effect"])
            large = np.inf if role == CONDITION else max(effect, abs(margin), gate.NOISE)
            checks = zip(*(gate.check(*place, large) for place in places), strict=True)
            line["closed"], line["blind"] = (next(filter(None, each), "") for each in checks)
        encoders = [encoder(rows.settings().get(system, {})) for rows, system, _ in places if rows.settings()]
        columns = "weight", "chapter", "system", "collections"
        means = [
            {name: getattr(term, name) for name in columns} | {"mean": round(float(mean), 4)}
            for term, mean in zip(terms, line.pop("means"), strict=True)
        ]
        return line | {
            "role": role, "label": contrast.label or _label(contrast), "terms": json.dumps(means), "margin": margin,
            "measure": terms[0].measure, "alike": contrast.alike, "rows": kind.rows,
            "data_sets": json.dumps([*dict.fromkeys(name for term in terms for name in term.data_sets)]),
            "collections": json.dumps([*dict.fromkeys(on for *_, on in places)]),
            "unit": "ratio" if kind.ratio else "points", "paper": np.nan if contrast.paper is None else contrast.paper,
            "encoder": "; ".join(dict.fromkeys(filter(None, encoders or [self._encoder]))),
            "candidates": candidates if np.isfinite(candidates) else np.nan,
        }  # fmt: skip


def _label(contrast: Contrast) -> str:
    terms = contrast.terms
    if terms[0].kind.ratio and [term.weight for term in terms] == [1, -1]:
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
    of_measure = lines[lines["measure"] == measure]
    fewest = (of_measure if len(of_measure) else lines)["candidates"].astype(float).min()
    return np.inf if np.isnan(fewest) else fewest


def encoder(settings: Mapping[str, Any]) -> str:
    """Return what a system encodes with, from its recorded settings; "" of one that encodes nothing."""
    if settings.get("checkpoint"):
        return str(settings["checkpoint"])
    if settings.get("encoder") == "transformer":
        *_, last = (each for each in (settings, *settings.get("stages", ())) if "layers" in each)
        layers = last["layers"]
        return f"Transformer, {layers} layer{'s' if layers != 1 else ''}" if layers else "token embeddings, no layer"
    parts = [each for each in settings.values() if isinstance(each, Mapping)] + [*settings.get("fused", ())]
    return settings.get("encoder", "") or "; ".join(dict.fromkeys(filter(None, map(encoder, parts))))
