"""Every binding can come out both ways: rows are made up for which its claim plainly holds, and plainly does not.

What a comparison asks for is a linear constraint on the levels of its systems (or on the logarithms of their numbers),
so that a linear program says whether all comparisons of a claim can be satisfied together, and finds levels that do it.
Its solution is recorded with a little noise, and judged as any other results are.
"""

from functools import cache

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import linprog

from retlib.core import notebook_files, runtime
from retlib.evaluation.results import _SEPARATOR, Results
from retlib.report import claims, verdict_text
from retlib.report.claims import CONTRADICTED, HOLDS
from retlib.report.records import named, used

SEEDS, QUERIES, STEPS, EVERY = 3, 40, 200, 20
NOISE, CLEAR, LARGEST = 0.02, 0.5, 8.0  # points: of a query or a step; the least and the largest gap to a margin
LEVELS, LOGARITHMS = (2, 98), (-12, 12)
# Steps and validation scores of a training that has come to rest, and which weights are kept.
LEARNED = [(0, 40.0, False), (50, 50.0, False), (80, 50.5, True), (100, 50.0, False)]
NAMES = [f"q{i}" for i in range(QUERIES)]
CURVES = {"rise", "above_at_end", "above_throughout", "sawtooth", "swing"}
BOUND = claims.bindings()
PAPER = claims.papers_table("claims").set_index("id")["paper"]


def specs(claim):
    """A claim's comparisons and its conditions, complete."""
    return claims.asked(claim) + claims.asked(claim, "given")


def places(claim, name, profile):
    """The collections of the claim's data sets at a profile; None where it is not tested there."""
    if claims.untested(claim, profile):
        return None
    known, asked = BOUND["collections"].get(PAPER[name], {}), claims.compared_on(claim)
    here = {data_set: known.get(data_set, {}).get(profile) for data_set in asked}
    if None in here.values():
        return None
    here = {data_set: place["collection"] for data_set, place in here.items()}
    return here if claim.get("one_is_enough") or len(set(here.values())) == len(here) else None


def cases():
    """Every claim at every profile where it is tested, once for profiles at which its data sets are alike."""
    for name, claim in BOUND["claims"].items():
        alike = {}
        for profile in notebook_files.profiles(runtime.root()):
            if here := places(claim, name, profile):
                alike.setdefault(tuple(map([*here.values()].index, here.values())), []).append(profile)
        yield from (pytest.param(name, several[0], id=f"{name}-{'+'.join(several)}") for several in alike.values())


# --- what a comparison asks for ----------------------------------------------------------------------


def kind(spec):
    """What is recorded for a comparison: steps, numbers, curves, or values by query."""
    return {"fewer": "steps", "limit": "number", "quotient": "number"}.get(
        spec["test"], "curve" if spec["test"] in CURVES else "query"
    )


def asked(spec, here):
    """The constraints of a comparison: (weights of its variables, lower bound, upper bound), gaps left out."""
    variable = lambda system, data_set: (kind(spec), system, here[data_set], spec["measure"])  # noqa: E731
    test, margin = spec["test"], spec.get("margin", 0.0)
    if test == "linear":
        weights = {}
        for weight, system, data_set in spec["terms"]:
            at = variable(system, data_set)
            weights[at] = weights.get(at, 0) + weight
        return [(weights, *((-spec["within"], spec["within"]) if "within" in spec else (margin, None)))]
    if test == "trend":
        steps = zip(spec["systems"], spec["systems"][1:], strict=False)
        return [({variable(b, spec["data"]): 1, variable(a, spec["data"]): -1}, 0.0, None) for a, b in steps]
    if test in ("rise", "sawtooth", "swing"):
        return []  # of a curve's shape, not of its level
    if test in ("limit", "quotient"):
        first, *second = spec.get("pair") or [spec["system"]]
        weights = {variable(first, spec["data"]): 1, **{variable(name, spec["data"]): -1 for name in second}}
        below, above = (np.log(spec[side]) if side in spec else None for side in ("below", "above"))
        return [(weights, above, below)]
    a, b = spec["pair"]
    weights, data_sets = {}, list({here[name]: name for name in spec["data"].split("+")}.values())
    for data_set in data_sets:
        weights |= {variable(a, data_set): 1 / len(data_sets), variable(b, data_set): -1 / len(data_sets)}
    if test == "fewer":
        return [(weights, None, 0.0)]
    return [(weights, *((-margin, margin) if test == "equivalent" else (margin, None)))]


def solved(constraints, variables):
    """Levels for which all constraints hold by the largest gap that they allow; None where they cannot."""
    if not variables:
        return {}
    place = {variable: i for i, variable in enumerate(variables)}
    rows, bounds = [], []
    for weights, low, high in constraints:
        row = np.zeros(len(place) + 1)
        for variable, weight in weights.items():
            row[place[variable]] = weight
        # An interval is narrow: its gap is a share of what is between the middle and its ends.
        gap = min(1.0, (high - low) / 2 / LARGEST) if low is not None and high is not None else 1.0
        if low is not None:
            rows, bounds = [*rows, np.append(-row[:-1], gap)], [*bounds, -low]
        if high is not None:
            rows, bounds = [*rows, np.append(row[:-1], gap)], [*bounds, high]
    ranges = [LEVELS if variable[0] in ("query", "curve") else LOGARITHMS for variable in variables]
    goal = np.append(np.zeros(len(place)), -1)
    found = linprog(goal, A_ub=np.array(rows), b_ub=bounds, bounds=[*ranges, (CLEAR, LARGEST)])
    return dict(zip(variables, found.x[:-1], strict=True)) if found.success else None


def turned(constraints):
    """The same constraints, the first of them broken."""
    weights, low, high = constraints[0]
    if low is not None and high is not None:
        return [(weights, high, None)]
    return [(weights, high, low)]


# --- rows ----------------------------------------------------------------------------------------------


def shaped(spec, against):
    """(system, shape) of the curves of a comparison on shapes, as added to their levels."""
    steps = np.arange(STEPS)
    teeth = 2 - 4 * (steps % EVERY) / EVERY
    if spec["test"] == "rise":
        return [(spec["system"], (1 - 2 * against) * 5 * steps / STEPS)]
    if spec["test"] == "sawtooth":
        return [(spec["system"], teeth[::-1] if against else teeth)]
    return [(spec["pair"][1 if against else 0], teeth)] if spec["test"] == "swing" else []


def recorded(claim, here, levels, against=False):
    """Results in which every system of a claim has its level, by experiment."""
    rng, made, tables, shapes = np.random.default_rng(0), {}, {}, {}
    for spec in specs(claim):
        shapes |= {(system, spec["measure"]): shape for system, shape in shaped(spec, against)}
    wanted = [(kind(spec), system, here[at], spec["measure"]) for spec in specs(claim) for system, at in used(spec)]
    for variable in dict.fromkeys(wanted):
        what, system, collection, measure = variable
        experiment, name = named(system)
        found, lines = made.setdefault(experiment, Results()), tables.setdefault(experiment, ([], {}, []))
        level, noise = levels.get(variable, 50.0), NOISE * rng.normal(size=(SEEDS, STEPS))
        for seed in range(SEEDS):
            row = {"experiment": experiment, "system": name, "collection": collection, "split": "test", "seed": seed}
            if what in ("number", "steps"):
                number = float(np.exp(level + noise[seed, 0]))
                found.add_row(**row, measure=measure, value=number, steps=number if what == "steps" else None)
            if what == "query":
                found.add_row(**row, measure=measure, value=level / 100, steps=80)
                columns = found.queries.setdefault((collection, "test", measure), {"cluster": NAMES})
                columns[f"{name}{_SEPARATOR}{seed}"] = (level + noise[seed, :QUERIES] + noise[seed, -1]) / 100
            if what == "curve":
                found.add_row(**row, measure=f"{measure}, last fifth", value=level / 100, steps=None)
                values = (level + shapes.get((system, measure), 0) + noise[seed]) / 100
                lines[0].extend((name, seed, step, measure, value) for step, value in enumerate(values))
            lines[1].update(dict.fromkeys((name, collection, seed, *point) for point in LEARNED))
        lines[2].append((name, EVERY))
    for experiment, (curves, learning, intervals) in tables.items():
        queries = made[experiment].queries
        made[experiment].queries = {at: pd.DataFrame(columns, index=NAMES) for at, columns in queries.items()}
        made[experiment].tables = {
            "curves": pd.DataFrame(curves, columns=["system", "seed", "step", "measure", "value"]),
            "learning": pd.DataFrame([*learning], columns=["system", "collection", "seed", "step", "score", "kept"]),
            "intervals": pd.DataFrame(dict(intervals).items(), columns=["system", "interval"]),
        }
    return made


def judged(monkeypatch, name, profile, made):
    """The claim's row of the ledger, where all other claims of its paper are not bound."""
    alone = {"collections": BOUND["collections"], "claims": {name: BOUND["claims"][name]}}
    monkeypatch.setattr(claims, "bindings", lambda: alone)
    monkeypatch.setattr(claims, "loader", lambda *_: cache(made.get))
    found = claims.verdicts(PAPER[name], profile).set_index("claim").loc[name]
    said = "\n".join([found["reason"], found["said"], *map(verdict_text.line, found["evidence"])])
    return found["verdict"], said


@pytest.mark.parametrize(("name", "profile"), [*cases()])
def test_a_claim_can_come_out_both_ways(name, profile, monkeypatch):
    claim = BOUND["claims"][name]
    here = places(claim, name, profile)
    constraints, given = (
        [constraint for spec in claims.asked(claim, part) for constraint in asked(spec, here)]
        for part in ("each", "given")
    )
    variables = list(dict.fromkeys(variable for weights, *_ in constraints + given for variable in weights))
    levels = solved(constraints + given, variables)
    assert levels is not None, f"{name} at {profile}: no results satisfy all of its comparisons"
    verdict, said = judged(monkeypatch, name, profile, recorded(claim, here, levels))
    assert verdict == HOLDS, f"{name} at {profile} cannot hold:\n{said}"
    # Its conditions are met all the same: else it would not be tested.
    levels = solved(turned(constraints) + given, variables) if constraints else {}
    assert levels is not None, f"{name} at {profile}: no results break its first comparison"
    verdict, said = judged(monkeypatch, name, profile, recorded(claim, here, levels, against=True))
    assert verdict == CONTRADICTED, f"{name} at {profile} cannot be contradicted:\n{said}"


def test_comparisons_that_exclude_each_other_have_no_levels():
    places = {"D": "d", "E": "d"}

    def over(a, b, **more):
        return {"test": "greater", "measure": "R@1", "pair": [a, b], "data": "D+E", **more}

    def find(*each):
        constraints = [constraint for spec in each for constraint in asked(spec, places)]
        return solved(constraints, [("query", name, "d", "R@1") for name in "AB"])

    found = find(over("A", "B", margin=3.0))
    assert [*found.values()][0] - [*found.values()][1] >= 3 + LARGEST - 1e-6
    assert find(over("A", "B"), over("B", "A")) is None
    assert find(over("A", "B", margin=95.8)) is None  # there is no room between the ends of a measure
    assert find(over("A", "B", margin=-1.0), over("B", "A", margin=-1.0)) is not None
