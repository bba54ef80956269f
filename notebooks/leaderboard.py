"""The leaderboard: equal budgets, questions as items for bags of words, and its tables; chapter 51."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

import numpy as np
import pandas as pd
from pydantic import Strict

from retlib.core.errors import DataError, require
from retlib.data.collection import Collection
from retlib.data.tokenized import texts
from retlib.evaluation.results import Results
from retlib.report import tables
from retlib.studies import study
from retlib.studies.experiment import NonEmpty, NonNegative, Positive, Rate, Share
from retlib.systems.query_generation import QueryGenerator
from retlib.systems.ranking import Ranker
from retlib.systems.system import Target
from retlib.systems.training_data import Labels

MEASURES = ["RR@10", "R@1", "R@10", "R@100", "nDCG@10"]
CHOSEN_BY = "RR@10"
TRIED: dict[str, Any] = {
    "bm25_trials": NonEmpty[Annotated[tuple[NonNegative, Share], Strict(False)]],
    **dict.fromkeys(("words_rates", "label_rates", "ranked_rates", "query_rates"), NonEmpty[Rate]),
    "fusion_shares": NonEmpty[Share],
}
TYPES = {"timed": Positive, **TRIED}


def equal_budgets(parameters: Mapping[str, Any]) -> None:
    """Raise `SettingError` unless every method tries as many settings as the others."""
    counts = {name: len(parameters[name]) for name in TRIED}
    same = len({*counts.values()}) == 1
    require(same, f"every method must try as many settings as the others; here they try {counts}")


def check(collection: Collection) -> Collection:
    """Return a collection whose every split has judged questions: to train, to choose settings, and to test on."""
    missing = {"train", "dev", "test"} - set(collection.queries["split"][collection.relevant()["query_id"].unique()])
    wrong = f"{collection.name!r} has no questions with a relevant document to {' and '.join(sorted(missing))}"
    require(not missing, f"{wrong}; a leaderboard needs them", DataError)
    return collection


def as_items(collection: Collection) -> Collection:
    """Return the labels as pairs of items, as Gillick's encoders are trained: a question is an item, too."""
    whole = Labels().collection(collection)
    judged = whole.relevant().join(whole.queries[["text", "split"]], on="query_id").query("split != 'test'")
    ids = pd.Index("question: " + judged["query_id"] + "?" + judged["doc_id"], name="query_id")
    queries = judged[["text", "split"]].assign(cluster=judged["doc_id"]).set_axis(ids)
    items = pd.concat([texts(collection), queries["text"]]).to_frame("text").rename_axis("doc_id")
    pairs = {"left": ids, "right": queries["cluster"].array, "label": 1, "split": queries["split"].array}
    qrels = pd.DataFrame({"query_id": ids, "doc_id": queries["cluster"].array, "relevance": 1})
    return Collection(f"{collection.name}, items", items, queries, qrels, pairs=pd.DataFrame(pairs))


def tune(
    target: Target, seed: int, methods: Mapping[str, tuple[Sequence[Any], Callable[[dict[str, Any]], Ranker]]]
) -> tuple[dict[str, Any], pd.DataFrame]:
    """Return one setting of each method, the best on validation questions, and the trials; one method after the other.

    `methods` has the values that each may try, and what makes its system of the values chosen so far and its own, by
    the names of the methods. Of equal values the first is chosen. The trials are `system`, `setting` (a learning rate,
    a share, or BM25's k1 and b), the measure that chooses in points of 100, `chosen`, and `collection`.
    """
    chosen: dict[str, Any] = {}
    tables = []
    for name, (values, make) in methods.items():
        trials = [make({**chosen, name: value}) for value in values]
        table = study.tune({name: trials}, target, seed, CHOSEN_BY, depth=1000)
        chosen[name] = values[table["chosen"].to_numpy().argmax()]
        settings = [", ".join(f"{each:g}" for each in np.atleast_1d(value)) for value in values]
        tables.append(table.assign(setting=settings, **{CHOSEN_BY: 100 * table[CHOSEN_BY]}))
    return chosen, pd.concat(tables, ignore_index=True)[["system", "setting", CHOSEN_BY, "chosen", "collection"]]


def sizes(targets: Mapping[str, Sequence[Target]], generators: Mapping[str, QueryGenerator], seed: int) -> pd.DataFrame:
    """Return what is ranked, and what trains: documents, questions by split, and a seed's generated queries."""
    return pd.DataFrame(
        {
            "collection": target.name,
            "documents": len(target.documents),
            **{f"{split} questions": len(target.split(split)) for split in ("train", "dev", "test")},
            "generated queries": len(generators[source].seeded(seed).queries(target.documents)),
            "generator trained on": source,
            "fingerprint": target.fingerprint[:12],
        }
        for source, tests in targets.items()
        for target in (each.test for each in tests)
    )


def grid(results: Results, collection: str, systems: Mapping[str, Mapping[str, str]]) -> pd.DataFrame:
    """Return systems, whose names stand in `systems` by row and column, as a table.

    Text such as ``41.3 ± 0.8``: points of 100 over questions and seeds with half of the 95 % interval; empty where
    there is no such system.
    """
    texts = tables.measured(results, collection, [CHOSEN_BY])[CHOSEN_BY]
    rows = {row: {column: texts.get(name, "") for column, name in of.items()} for row, of in systems.items()}
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("start")
