"""Claims: what a chapter declares of its recorded rows, the gate, and the verdicts over a paper (all that have claims).

A chapter declares its claims beside its systems, as contrasts. Its cell reads recorded rows alone, and records the
table `claims`: a line for each contrast, without a verdict. The gate closes contrasts of systems that do not work, or
that the measure does not tell apart. The ledger reads the tables of a paper's chapters, and corrects over them each
contrast's one-sided p-values for its claim and against it, and the one for no effect of as much as a point.

A claim *holds* if every contrast speaks for it (the largest p-value is under 0.05 after Holm's correction over the
claims of the paper). The test goes *against* it if one contrast does, corrected over all contrasts of the paper; a
recorded note makes that *contradicted* or *not reproduced*. It shows *no effect* if one contrast shows none, corrected
likewise, and none speaks for it; else it is *inconclusive*. A trained system of one seed gives an *indication*. A claim
is *not tested* where its chapter says why, where the gate shut a contrast, and where a condition is not seen.
"""

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from retlib.core.errors import DataError, require, require_one_of
from retlib.data.datasets.catalogue import called
from retlib.evaluation import results
from retlib.evaluation.measures import holm
from retlib.evaluation.results import Results
from retlib.report.contrasts import END, LEVEL, QUESTIONS, Contrast, Kind, Term, test
from retlib.report.papers import STAND_IN, SUBSET, collections, papers, papers_table

TEST, CONDITION = "test", "condition"
NOISE = 1.0  # points; 500 validation questions have an error of one or two
EMPTY = {
    "claim": "", "role": TEST, "label": "", "terms": "", "measure": "", "data_sets": "", "collections": "", "unit": "",
    "rows": "", "margin": np.nan, "alike": False, "effect": np.nan, "low": np.nan, "high": np.nan, "freedom": np.nan,
    "p_for": np.nan, "p_against": np.nan, "p_none": np.nan, "seeds": np.nan, "questions": np.nan, "one_seed": False,
    "closed": "", "blind": "", "paper": np.nan, "encoder": "", "candidates": np.nan, "reason": "",
}  # fmt: skip
HOLDS, AGAINST, NO_EFFECT = "holds", "against, here", "no effect"
CONTRADICTED, NOT_REPRODUCED = "contradicted", "not reproduced"
INCONCLUSIVE, INDICATION, NOT_TESTED = "inconclusive", "indication", "not tested"
# A sign for each verdict, so that it reads without colour.
SIGNS = {
    HOLDS: "✓", CONTRADICTED: "✗", NOT_REPRODUCED: "⊘", AGAINST: "↓", NO_EFFECT: "≈", INCONCLUSIVE: "~",
    INDICATION: "○", NOT_TESTED: "·",
}  # fmt: skip
# The p-values that a verdict goes by, in the order in which they are asked; of all others by `p_for`, too.
P_VALUES = {AGAINST: "p_against", HOLDS: "p_for", NO_EFFECT: "p_none"}
UNTESTED = dict.fromkeys(("test", "verdict", "by_bh"), NOT_TESTED) | dict.fromkeys(("note", "fidelity", "reason"), "")
UNTESTED |= {"p": np.nan, "seeds": 0, "speaks": {}, "tests": [], "conditions": []}


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
        """A line for each contrast, in the columns of `EMPTY`; of what is not tested one with the `reason`."""
        # Contrasts of several data sets are one where one collection stands for them.
        same = ["claim", "role", "terms", "measure", "effect", "margin", "alike", "closed", "reason"]
        return pd.DataFrame(self._lines, columns=[*EMPTY]).drop_duplicates(same, ignore_index=True)

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
        candidates = pd.Series([_candidates(*place, terms[0].measure) for place in places]).min()
        line["closed"] = line["closed"] or too_deep(terms[0].measure, candidates)
        if kind.gate and contrast.gated and not line["closed"]:
            effect = 0.0 if kind.ratio else abs(line["effect"])
            large = np.inf if role == CONDITION else max(effect, abs(margin), NOISE)
            checks = zip(*(gate(*place, large) for place in places), strict=True)
            line["closed"], line["blind"] = (next(filter(None, each), "") for each in checks)
        settings = [(rows.once(Results.settings), system) for rows, system, _ in places]
        encoders = [encoder(each.get(system, {})) for each, system in settings if each]
        columns = "weight", "chapter", "system", "collections"
        means = zip(terms, line.pop("means"), strict=True)
        means = [{key: getattr(term, key) for key in columns} | {"mean": round(float(mean), 4)} for term, mean in means]
        return line | {
            "role": role, "label": contrast.label or _label(contrast), "terms": json.dumps(means), "margin": margin,
            "measure": terms[0].measure, "alike": contrast.alike, "rows": kind.rows,
            "data_sets": json.dumps([*dict.fromkeys(name for term in terms for name in term.data_sets)]),
            "collections": json.dumps([*dict.fromkeys(on for *_, on in places)]),
            "unit": "ratio" if kind.ratio else "points", "paper": np.nan if contrast.paper is None else contrast.paper,
            "encoder": "; ".join(dict.fromkeys(filter(None, encoders or [self._encoder]))),
            "candidates": candidates,
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
    # The fewest that a system was measured among, NaN where it is unknown. Of curves there are no rows.
    lines = rows.lines(system, collection).reindex(columns=["measure", "candidates"])
    of_measure = lines[lines["measure"] == measure]
    return (of_measure if len(of_measure) else lines)["candidates"].astype(float).min()


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


# --- the gate ----------------------------------------------------------------------------------------

# The table ``learning`` of a chapter has what validation saw of each trained system's last stage, by collection and
# seed: `step`, `score` in points of 100, and whether its weights were `kept`. The gate looks at the end of a curve.
# Where the learning rate has decayed to zero it is blind: there only half again as many steps tell.


def too_deep(measure: str, candidates: float) -> str:
    """Return why recall at this k is near its ceiling whatever the systems do; "" where it is not."""
    why = f"{measure} among {candidates:g} candidates is near its ceiling: k is more than a twentieth of them"
    return why if measure.startswith("R@") and int(measure[2:]) > candidates / 20 else ""


def endings(rows: Results) -> pd.DataFrame:
    """Return how the trainings of each system and collection ended, of the table ``learning``: means over seeds.

    `rise` is by how much the best score of the last fifth of the `steps` is above the best before; `start` and `kept`
    are the scores before the first step and of the kept weights, NaN where none was taken at the start.
    """
    curves, keys = rows.tables["learning"], ["system", "collection", "seed"]
    last = curves["step"] > (1 - END) * curves.groupby(keys)["step"].transform("max")
    parts = {"last": last, "before": ~last, "start": curves["step"] == 0, "kept": curves["kept"]}
    best = pd.DataFrame({name: curves[part].groupby(keys)["score"].max() for name, part in parts.items()})
    best = best.assign(rise=best["last"] - best["before"], kept=best["kept"].where(best["start"].notna()))
    return best.groupby(keys[:2]).mean().assign(steps=curves.groupby(keys[:2])["step"].max())


def gate(rows: Results, system: str, collection: str, large: float) -> tuple[str, str]:
    """Return what is wrong with how a training ended, from a rise of `large` points on, and what cannot be seen."""
    ends = rows.once(endings) if "learning" in rows.tables else pd.DataFrame()
    if (system, collection) not in ends.index:
        trained = rows.lines(system, collection).reindex(columns=["steps"])["steps"].notna().any()
        return "", f"{system} has no learning curve" if trained else ""
    end, name = ends.loc[system, collection], called(collection)
    *_, stage = {}, *(rows.once(Results.settings).get(system, {}).get("stages") or ())
    decayed = f"the rate of {system} has decayed to zero; a run with half again as many steps would tell"
    blind, below = decayed if stage.get("decay") else "", ""
    if end["rise"] > large:
        rose = f"{system} rose by {end['rise']:.1f} points in the last fifth of {end['steps']:.0f} steps"
        return f"still learning on {name}: {rose}; more than {end['steps']:.0f} steps are needed", blind
    if end["kept"] < end["start"] - NOISE:
        below = f"{system} has {end['kept']:.1f} points on validation, and began with {end['start']:.1f}"
    return below and f"below its own start on {name}: {below}", blind


# --- verdicts ----------------------------------------------------------------------------------------


def ledger(profile: str, source: str | None = None) -> pd.DataFrame:
    """Return the verdicts on all claims of all papers, in the order of the book's parts."""
    return pd.concat([verdicts(paper, profile, source) for paper in papers()], ignore_index=True)


def verdicts(paper: str, profile: str, source: str | None = None) -> pd.DataFrame:
    """Return the verdict on every claim of a paper, a row each, in the order of claims.csv.

    Beside its columns: `test`, the verdict of the test alone; `verdict`, with what it is evidence of, and the `note` on
    that; the `p` of what it hangs on (Holm); `by_bh`, the verdict after Benjamini and Hochberg's correction; how many
    contrasts are of each verdict (`speaks`); `seeds`; `fidelity` of the data; `tests` and `conditions`, lists of lines
    of the chapters' tables, those of tests with `verdict`; `reason`, why it is not tested.
    """
    from scipy.stats import false_discovery_control  # half a second, which a desk does not wait for

    claims, rows = papers_table("claims").query("paper == @paper"), []
    recorded = (results.load(chapter, profile, source) for chapter in claims["chapter"].unique() if chapter)
    tables = [each.tables["claims"] for each in recorded if each and "claims" in each.tables]
    lines = pd.concat(tables or [pd.DataFrame(columns=[*EMPTY])], ignore_index=True)
    lines = lines[lines["claim"].isin(claims["id"])]
    tests = lines[(lines["role"] == TEST) & (lines["reason"] == "")]
    corrected = [_corrected(tests, correct) for correct in (holm, false_discovery_control)]
    notes = papers_table("evidence").query("profile == @profile").set_index("claim").to_dict("index")
    fidelity = collections(paper, profile)["fidelity"]
    for claim in claims.to_dict("records"):
        name, of_claim = claim["id"], lines[lines["claim"] == claim["id"]]
        why = f"not tested at profile {profile}" if claim["chapter"] else "its part of the book is not written yet"
        verdict = _judge(of_claim, *corrected, notes.get(name, {}), fidelity) if len(of_claim) else {"reason": why}
        rows.append(claim | UNTESTED | verdict)
    return pd.DataFrame(rows)


def _corrected(tests: pd.DataFrame, correct: Callable) -> pd.DataFrame:
    # Every contrast must speak for a claim, so that the largest p-value is the claim's, and one speaks for it if the
    # claim would hold with it alone. Any one may speak against it. What is closed is corrected for, too: whether it is
    # may depend on its effect.
    largest = tests.groupby("claim", sort=False)["p_for"].max()
    p = {name: correct(tests[name].to_numpy(float)) for name in ("p_against", "p_none")}
    p["p_for"] = [correct([*largest.drop(line.claim), line.p_for])[-1] for line in tests.itertuples()]
    p = pd.DataFrame(p, tests.index, dtype=float)
    return p.assign(speaks=np.select([p[name] < LEVEL for name in P_VALUES.values()], [*P_VALUES], INCONCLUSIVE))


def _judge(lines: pd.DataFrame, by_holm: pd.DataFrame, by_bh: pd.DataFrame, note: dict, fidelity: pd.Series) -> dict:
    if (lines["reason"] != "").any():
        return {"reason": "; ".join(lines["reason"].unique())}
    tests, conditions = (lines[lines["role"] == role] for role in (TEST, CONDITION))
    by_holm, by_bh = by_holm.loc[tests.index], by_bh.loc[tests.index]
    sets = sorted({name for each in lines["data_sets"] for name in json.loads(each)})
    row = {
        "seeds": int(min(tests["seeds"][(tests["seeds"] > 1) | tests["one_seed"]], default=1)),
        "fidelity": STAND_IN if STAND_IN in set(fidelity[sets]) else SUBSET, "conditions": [*conditions.itertuples()],
        "tests": [*tests.assign(verdict=by_holm["speaks"]).itertuples()],
    }  # fmt: skip
    reasons = [*filter(None, tests["closed"])] + [
        f"presupposes {line.label} above {amount_text(line, line.margin)}; {line.closed or f'here {effect_text(line)}'}"
        for line in row["conditions"]
        if not is_seen(line)
    ]
    if reasons:
        return row | {"reason": "; ".join(dict.fromkeys(reasons))}
    test, other = (INDICATION if tests["one_seed"].any() else _decide({*p["speaks"]}) for p in (by_holm, by_bh))
    # Against a claim is evidence on the paper's own material, or on our scale, our stand-in for its data, our choices.
    against = {AGAINST: CONTRADICTED if note["kind"] == "paper" else NOT_REPRODUCED} if note else {}
    row |= {"test": test, "verdict": against.get(test, test), "by_bh": against.get(other, other)}
    hangs_on = by_holm[P_VALUES.get(test, "p_for")]
    row["p"] = hangs_on.max() if hangs_on.name == "p_for" else hangs_on.min()
    row["note"] = note["note"] if note and test == AGAINST else ""
    return row | {"speaks": by_holm["speaks"].value_counts().to_dict()}


def _decide(speaks: set[str]) -> str:
    if AGAINST in speaks:
        return AGAINST
    if NO_EFFECT in speaks and HOLDS not in speaks:
        return NO_EFFECT
    return HOLDS if speaks == {HOLDS} else INCONCLUSIVE


def is_seen(condition: Any) -> bool:
    """Return whether a condition speaks for itself: without correction, as it decides no claim."""
    return not condition.closed and condition.p_for < LEVEL


def decisive(row: Any) -> Any:
    """Return the contrast that a verdict hangs on: what speaks most against the claim, or least for it."""
    p = P_VALUES.get(row.test, "p_for")
    return (max if p == "p_for" else min)(row.tests, key=lambda line: getattr(line, p))


def amount_text(line: Any, effect: float) -> str:
    """Return an effect in the unit of a contrast: ``+2.10``, or ``x3.23`` of a ratio."""
    if line.unit == "points":
        return f"{effect:+.2f}"
    ratio = math.exp(effect)
    return f"x{ratio:.2f}" if 0.1 <= ratio < 1000 else f"x{ratio:.2g}"


def effect_text(line: Any) -> str:
    """Return a contrast's effect with its 95 % interval: ``+2.10 [+1.20, +3.00]``."""
    return f"{amount_text(line, line.effect)} [{amount_text(line, line.low)}, {amount_text(line, line.high)}]"
