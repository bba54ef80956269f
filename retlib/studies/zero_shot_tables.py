"""Tables of the pages on generated queries: their data, what generators write, the paper's numbers (Liang 2020)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product

import pandas as pd

from retlib.core import runtime
from retlib.data.collection import Collection, hash_position
from retlib.evaluation import query_measures
from retlib.evaluation.measures import compare, holm, same_seeds
from retlib.evaluation.results import Results
from retlib.models import decoding
from retlib.report import claims
from retlib.studies.experiment import Experiment
from retlib.studies.zero_shot_study import DIMENSIONS, PORTIONS, TOWERS, Study, Tests

REAL = "Real"
# Our systems by the names that the paper's tables have for them, where those differ.
THEIRS = {
    "BM25": "BM25 | None", "Siamese | Source": "Siamese | MSMARCO", "Two-Tower | Source": "Two-Tower | MSMARCO",
    "Two-Tower | ICT": "Two-tower | ICT", "Two-Tower | Beam": "Two-tower | Beam",
    "Siamese | Nucleus": "Siamese | Nucleus (p=0.95)", "Two-Tower | Nucleus": "Two-tower | Nucleus (p=0.95)",
    "Siamese | WikiGQ+FT(official)": "Siamese | FT w/ WikiGQ pretraining",
}  # fmt: skip


def sizes(studies: Mapping[str, Study], tests: Mapping[str, Tests]) -> pd.DataFrame:
    """What generators were trained on, the separate passages, and what is tested on, as Table 2 has them."""
    rows = []
    for source, study in studies.items():
        words = study.separate["text"].str.split().str.len()
        rows.append(_size(study.source, source, "trains the generator"))
        rows.append(
            {
                "generator": source, "collection": "separate passages", "role": "queries are generated",
                "passages": len(words), "words/passage": _spread(words), "fingerprint": "",
            }
        )  # fmt: skip
        rows += [_size(test, source, "target") for _, test in tests[source].values()]
    return pd.DataFrame(rows).fillna({f"{split} queries": 0 for split in ("train", "dev", "test")})


def _size(collection: Collection, source: str, role: str) -> dict:
    counts = {f"{split} queries": len(collection.split(split)) for split in ("train", "dev", "test")}
    words = collection.documents["text"].str.split().str.len()
    return {
        "generator": source, "collection": collection.name, "role": role, "passages": len(words), **counts,
        "words/passage": _spread(words), "fingerprint": collection.fingerprint[:12],
    }  # fmt: skip


def _spread(words: pd.Series) -> str:
    return f"{words.mean():.1f} ({words.std():.1f})"


# --- what a generator writes -----------------------------------------------------------------------


def losses(studies: Mapping[str, Study]) -> pd.DataFrame:
    """The generators' held-out loss while they learn: `generator`, `step`, `loss`, `seed`."""
    parts = [
        study.generator.history.frame()[["step", "score"]].assign(generator=source, seed=0)
        for source, study in studies.items()
    ]
    return pd.concat(parts, ignore_index=True).assign(loss=lambda table: -table["score"]).drop(columns="score")


def _targets(studies: Mapping[str, Study]) -> list[tuple[Study, Collection]]:
    """Every target with its study; sentences in passages (ReQA) are left to other pages."""
    pairs = [(study, target) for study in studies.values() for target in study.targets]
    return [(study, target) for study, target in pairs if "sentence" not in target.documents]


def sampled(target: Collection, count: int) -> pd.Series:
    """The texts of so many passages of a target that real queries ask for, by a hash of their ids."""
    relevant = target.qrels["doc_id"][target.qrels["relevance"] > 0].unique()
    return target.documents["text"][sorted(relevant, key=hash_position)[:count]]


# What is compared: the likeliest query, and five of both others, as in the paper (section 4).
DECODINGS: dict[str, decoding.Decoding] = {
    "Greedy": decoding.Greedy(), "Beam": decoding.Beam(), "Nucleus": decoding.Nucleus(),
}  # fmt: skip


def written(study: Study, texts: pd.Series, how: decoding.Decoding, seed: int) -> pd.DataFrame:
    """What a study's generator writes for passages."""
    # Only samples differ from seed to seed.
    seed = seed if isinstance(how, decoding.Nucleus) else 0
    return study.generated(texts.to_frame("text"), how, seed)


@dataclass(frozen=True, eq=False)
class Panel:
    """Some passages of a target, and who writes queries for them.

    Parameters
    ----------
    target : Collection
    texts : Series
        Passage id to text.
    writers : mapping
        Name to what writes the queries of these passages, given a seed.
    """

    target: Collection
    texts: pd.Series
    writers: Mapping[str, Callable[[int], pd.DataFrame]]

    @property
    def real(self) -> pd.DataFrame:
        """The real queries of the passages, in the form of generated ones."""
        qrels = self.target.qrels
        asked = qrels[(qrels["relevance"] > 0) & qrels["doc_id"].isin(self.texts.index)]
        queries = self.target.queries["text"][asked["query_id"]].to_numpy()
        return pd.DataFrame({"passage_id": asked["doc_id"].to_numpy(), "query": queries})


def decodings(studies: Mapping[str, Study], count: int) -> list[Panel]:
    """So many passages of every target, written for by each decoding."""
    found = []
    for study, target in _targets(studies):
        texts = sampled(target, count)
        found.append(Panel(target, texts, {n: partial(written, study, texts, how) for n, how in DECODINGS.items()}))
    return found


def record_statistics(experiment: Experiment, panels: Sequence[Panel], seeds: Sequence[int]) -> pd.DataFrame:
    """What is written for a sample of passages, by each writer; beside real queries.

    Returns
    -------
    DataFrame
        Columns `target`, `by` (Real, or the writer), `seed`, those of `retlib.evaluation.query_measures.statistics`.
    """
    rows = []
    for panel in runtime.progress(panels, desc="written", unit="target"):
        found = [(REAL, 0, panel.real)]
        found += [(name, seed, write(seed)) for (name, write), seed in product(panel.writers.items(), seeds)]
        for name, seed, queries in found:
            statistics = query_measures.statistics(queries, panel.texts)
            rows.append({"target": panel.target.name, "by": name, "seed": seed, **statistics})
            for measure, value in statistics.items():
                experiment.record(name, panel.target.name, measure, value, seed, "train")
    return pd.DataFrame(rows)


def examples(panels: Sequence[Panel], by: str, shown: int, quoted: Sequence[str] = ()) -> pd.DataFrame:
    """Passages with their queries, as Tables 1 and 6 have them: where queries find their passage, and where not.

    Parameters
    ----------
    by : str
        The writer whose queries decide that.
    shown : int
        Of the passages whose queries fare best, and of those whose fare worst.
    quoted : sequence of str, optional
        Targets whose passages are quoted; all, if empty. Not every licence allows it.

    Returns
    -------
    DataFrame
        Columns `target`, `passage`, `real`, and one for each writer: a line for each query, with ✓ where
        BM25 finds its passage first among the sample.
    """
    rows = []
    for panel in panels:
        if quoted and panel.target.name not in quoted:
            continue
        marked = {name: _marked(write(0), panel.texts) for name, write in panel.writers.items()}
        rate = marked[by].groupby("passage_id")["found"].mean()
        order = sorted(rate.index, key=lambda name: (-rate[name], hash_position(name)))
        real = panel.real.groupby("passage_id")["query"].agg("\n".join)
        for name in dict.fromkeys([*order[:shown], *order[len(order) - shown :]]):
            lines = {how: "\n".join(found["line"][found["passage_id"] == name]) for how, found in marked.items()}
            rows.append({"target": panel.target.name, "passage": panel.texts[name], "real": real[name], **lines})
    return pd.DataFrame(rows)


def _marked(queries: pd.DataFrame, texts: pd.Series) -> pd.DataFrame:
    found = query_measures.round_trip(queries, texts)
    signs = found.map({True: "✓ ", False: "✗ "})
    return queries.assign(found=found, line=signs + queries["query"])


# --- the paper's numbers, and ours beside them -----------------------------------------------------


def reported(artefact: str, data_set: str) -> dict[tuple[str, str], float]:
    """The numbers of one of the paper's tables for a data set: (our system, measure) to value; empty if it has none."""
    table = claims.reported("liang2020", artefact)
    table = table[(table["dataset"] == data_set) & (table["value"] != "") & table["metric"].str.startswith("R@")]
    ours = {theirs: system for system, theirs in THEIRS.items()}
    ours["Siamese | FT w/o pretraining"] = "Siamese | Official data"
    return {(ours.get(row.row, row.row), row.metric): float(row.value) for row in table.itertuples()}


def played(collection: str, profile: str) -> list[str]:
    """The paper's data sets that a collection plays; none where it stands in for all of them."""
    places = claims.bindings()["collections"]["liang2020"]
    mine = [name for name, place in places.items() if place.get(profile, {}).get("collection") == collection]
    return mine if len(mine) == 1 else []


def beside(collection: str, profile: str, artefacts: Iterable[str]) -> dict[tuple[str, str], float]:
    """What the paper reports for the data set that a collection plays, from several of its tables."""
    found = {}
    for artefact, data_set in product(artefacts, played(collection, profile)):
        found |= reported(artefact, data_set.partition(",")[0])
    return found


def against(results: Results, collections: Sequence[str], measure: str, rival: str = "BM25") -> pd.DataFrame:
    """Every system against one, on every collection.

    Returns
    -------
    DataFrame
        Columns `collection`, `system`, `effect` (system minus rival, points of a hundred) and `p`, of paired
        tests, Holm-corrected over all of them.
    """
    rows = []
    for name in collections:
        clusters, theirs = results.clusters(name, "test", measure), results.per_query(name, "test", measure, rival)
        for system in results.systems(name, "test", measure):
            if system == rival:
                continue
            found = compare(*same_seeds(results.per_query(name, "test", measure, system) * 100, theirs * 100), clusters)
            rows.append((name, system, found.effect, found.p_value()))
    frame = pd.DataFrame(rows, columns=["collection", "system", "effect", "p"])
    return frame.assign(p=holm(frame["p"]))


def recorded(results: Results, target: str) -> list[str]:
    """The names under which a target was tested: alone, and with further candidates."""
    names = dict.fromkeys(results.rows["collection"])
    return [name for name in names if name.removesuffix("+added") == target]


def separate(studies: Mapping[str, Study], target: str) -> pd.DataFrame:
    """How many separate passages the generator of a target wrote queries for, in one row: `passages`."""
    counts = [
        len(study.separate) for study in studies.values() if target in [collection.name for collection in study.targets]
    ]
    return pd.DataFrame({"passages": counts})


def pairs(studies: Mapping[str, Study], target: str) -> pd.DataFrame:
    """How many pairs a target's passages give to train on (Table 5): `decoding`, `passages`, `pairs`."""
    rows = []
    for study, collection in _targets(studies):
        kinds = {"Beam": decoding.Beam(), "Nucleus": study.generation.sampling}
        for name, how in kinds.items() if collection.name == target else ():
            found = study.generated(collection.documents, how)
            rows.append((name, len(collection.documents), len(found)))
    return pd.DataFrame(rows, columns=["decoding", "passages", "pairs"])


def by_dimension(results: Results, collection: str, measure: str = "R@10") -> pd.DataFrame:
    """Figure 2: `dimension`, `tower`, `seed`, `value` in points of a hundred."""
    systems = {f"{tower} | {size} dimensions": (tower, size) for tower in TOWERS for size in DIMENSIONS}
    mine = _rows(results, [collection], systems, measure)
    places = pd.DataFrame(mine["system"].map(systems).tolist(), columns=["tower", "dimension"], index=mine.index)
    return mine.join(places)[["dimension", "tower", "seed", "value"]]


def by_portion(results: Results, collections: Sequence[str], count: int, measure: str = "R@10") -> pd.DataFrame:
    """Figure 3: `passages`, `collection`, `seed`, `value` in points of a hundred; `count` are all passages."""
    mine = _rows(results, collections, PORTIONS, measure)
    share = mine["system"].str.extract(r"(\d+) %")[0].astype(int) / 100
    return mine.assign(passages=(share * count).round().astype(int))[["passages", "collection", "seed", "value"]]


def _rows(results: Results, collections: Sequence[str], systems: Iterable[str], measure: str) -> pd.DataFrame:
    rows = results.rows
    mine = (
        rows["collection"].isin(list(collections)) & rows["system"].isin(list(systems)) & (rows["measure"] == measure)
    )
    return rows[mine].assign(value=100 * rows["value"][mine]).reset_index(drop=True)
