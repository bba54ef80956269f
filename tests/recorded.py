"""Small recorded results, for tests of what is made of them."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import yaml
from scipy import stats

from retlib.evaluation.results import Results
from retlib.report import contrasts
from retlib.report.ledger import EMPTY


def put(
    made: Results,
    system: str,
    by_seed: Mapping[int, Sequence[float]],
    collection: str = "d",
    measure: str = "R@1",
    index: Sequence[str] | None = None,
    clusters: Sequence[str] | None = None,
    **row: object,
) -> Results:
    """Record values by question, in points of a hundred, of each seed of a system, and a row for their mean."""
    for seed, values in by_seed.items():
        asked = pd.Index([f"q{i}" for i in range(len(values))] if index is None else index)
        frame = pd.DataFrame({"query_id": asked, "measure": measure, "value": np.asarray(values, float) / 100})
        grouped = pd.Series(asked if clusters is None else clusters, index=asked)
        made.add_queries(collection, "test", system, seed, frame, grouped)
        number(made, system, {seed: frame["value"].mean()}, collection, measure, **row)
    return made


def number(
    made: Results, system: str, by_seed: Mapping[int, float], collection: str = "d", measure: str = "R@1", **row: object
) -> Results:
    """Record a row alone for each seed of a system."""
    for seed, value in by_seed.items():
        made.add_row(experiment="x", system=system, collection=collection, split="test", measure=measure,
                     value=float(value), seed=seed, profile="quick", **row)  # fmt: skip
    return made


def learned(system: str, *curves: Sequence[float], collection: str = "d", kept: int | None = None) -> pd.DataFrame:
    """Return lines of a table ``learning``: a curve for each seed in steps of 20; the best is kept, or a place."""
    lines = []
    for seed, scores in enumerate(curves):
        place = int(np.argmax(scores)) if kept is None else kept
        lines += [(system, collection, seed, 20 * i, float(score), i == place) for i, score in enumerate(scores)]
    return pd.DataFrame(lines, columns=["system", "collection", "seed", "step", "score", "kept"])


CLAIMS = "id,tier,paper,where,statement,compares,metric,dataset,paper_values,direction,chapter,also,as_tested,remark"
COLLECTIONS = """\
paper,data_set,profile,collection,fidelity,why
paper,D,quick,d,subset,
paper,E,quick,e,stand-in,
paper,F,quick,d,subset,
"""


def write_claims(root: Path, claims: Mapping[str, Mapping[str, str]], evidence: str = "") -> None:
    """Write `data/papers` of a project: by id how a claim differs from one of `paper` in chapter 11."""
    folder = root / "data" / "papers"
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(Path(__file__).parents[1] / "data" / "catalogue.yaml", root / "data")
    plain = dict.fromkeys(CLAIMS.split(","), "") | {"paper": "paper", "statement": "It is so", "chapter": "11_a"}
    lines = pd.DataFrame([plain | {"id": name} | dict(each) for name, each in claims.items()])
    lines.to_csv(folder / "claims.csv", index=False)
    (folder / "collections.csv").write_text(COLLECTIONS)
    (folder / "evidence.csv").write_text("claim,profile,kind,note\n" + evidence)
    known = dict.fromkeys(("part", "name", "authors", "title", "link"), "x") | {"chapters": [], "pages": {}}
    (folder / "papers.yaml").write_text(
        yaml.safe_dump({name: known for name in lines["paper"].unique()}, sort_keys=False)
    )


def outcome(claim: str, p_for: float = 0.5, p_against: float | None = None, **changes: object) -> dict[str, object]:
    """Return a line of a table `claims`: an effect of 2 with an error of 1 over 60 questions."""
    half = float(stats.t.ppf(0.975, 59))
    numbers = {"margin": 0.0, "effect": 2.0, "low": 2 - half, "high": 2 + half, "freedom": 59.0, "p_for": p_for,
               "p_against": 1 - p_for if p_against is None else p_against, "p_none": 1.0, "seeds": 3.0,
               "questions": 60.0, "paper": np.nan, "candidates": 500.0}  # fmt: skip
    texts = {"claim": claim, "role": "test", "label": "A − B", "terms": "[]", "measure": "R@1", "data_sets": '["D"]',
             "collections": '["d"]', "unit": "points", "rows": "questions", "closed": "", "blind": "", "encoder": "bow",
             "reason": ""}  # fmt: skip
    return numbers | texts | {"alike": False, "one_seed": False} | changes


def claims_table(*outcomes: Mapping[str, object]) -> pd.DataFrame:
    """Return a table `claims` of outcomes."""
    return pd.DataFrame(outcomes).reindex(columns=[*EMPTY])


def judge(contrast: contrasts.Contrast, made: Results, **chapters: Results) -> SimpleNamespace:
    """Return what a contrast says of results, or of those of the chapter that a term names."""

    def resolved(one: contrasts.Contrast) -> contrasts.Contrast:
        terms = tuple(term._replace(rows=chapters.get(term.chapter, made)) for term in one.terms)
        return contrasts.replace(one, terms=terms, rises=tuple(map(resolved, one.rises)))

    return SimpleNamespace(**contrasts.test(resolved(contrast)))
