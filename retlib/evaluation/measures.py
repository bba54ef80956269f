"""From runs to per-query measures, and from those to comparisons of systems: all chapters' numbers and intervals."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from hashlib import sha256
from itertools import chain, pairwise
from typing import Any

import numpy as np
import pandas as pd
from scipy import special  # scipy.stats has the same functions, and takes a second to import

from retlib.core import cache
from retlib.core.errors import DataError, SettingError, require
from retlib.data.collection import Collection
from retlib.data.text import words
from retlib.retrieval.lexical import BM25
from retlib.retrieval.runs import places

VALUES = 1  # version of what `evaluate` computes
Pieces = Sequence[tuple[float, float]]  # variances, each with its degrees of freedom


def evaluate(run: pd.DataFrame, qrels: pd.DataFrame, measures: Sequence[str]) -> pd.DataFrame:
    """Return values of measures by query, computed by ir-measures: columns `query_id`, `measure`, `value`.

    The `run` is one of `retlib.retrieval.runs.make_run`, in its order; queries come in the order of `qrels`
    (`query_id`, `doc_id`, `relevance`), and one without results scores 0. In ``AP@100`` (Gillick 2018, section 3.1) the
    sum of precisions at relevant ranks is over the number of known relevant documents.
    """
    parsed = {str(measure): measure for measure in map(_parsed, measures)}
    require(len(qrels) > 0, "there is no judgment to evaluate against", DataError)
    recalls = {name: each for name, each in parsed.items() if each.NAME == "R" and {*each.params} == {"cutoff"}}
    others = [each for name, each in parsed.items() if name not in recalls]
    values = (_recalls(run, qrels, recalls) if recalls else {}) | (_measured(run, qrels, others) if others else {})
    table = pd.DataFrame(values, qrels["query_id"].unique(), [*parsed], dtype=float).fillna(0.0)
    return table.rename_axis("query_id").melt(var_name="measure", ignore_index=False).reset_index()


def evaluate_once(run: pd.DataFrame, qrels: pd.DataFrame, measures: Sequence[str]) -> pd.DataFrame:
    """Return what `evaluate` does, which is kept: a page that runs again evaluates nothing."""
    hashes = [pd.util.hash_pandas_object(each, index=False).to_numpy().tobytes() for each in (run, qrels)]
    settings = {"frames": [sha256(each).hexdigest() for each in hashes], "measures": list(measures)}
    folder = cache.artefact(
        "values", VALUES, settings, lambda made: evaluate(run, qrels, measures).to_parquet(made / "values.parquet")
    )
    return pd.read_parquet(folder / "values.parquet")


def _measured(run: pd.DataFrame, qrels: pd.DataFrame, measures: Sequence) -> dict[str, pd.Series]:
    import ir_measures

    # Evaluators order equal scores each in their own way; descending ranks leave them no choice.
    ranked = run[["query_id", "doc_id"]].assign(score=-places(run).astype(float))
    cuts = [measure.params.get("cutoff", np.inf) for measure in measures]
    ranked = ranked[ranked["score"] > -max(cuts)]  # what lies below every cut takes most of the time
    values = pd.DataFrame(ir_measures.iter_calc(measures, qrels, ranked), columns=["query_id", "measure", "value"])
    return {name: part.set_index("query_id")["value"] for name, part in values.groupby(values["measure"].map(str))}


def _recalls(run: pd.DataFrame, qrels: pd.DataFrame, measures: Mapping[str, Any]) -> dict[str, pd.Series]:
    # Recall as ir-measures computes it, fast enough for a hundred thousand queries.
    relevant = qrels.loc[qrels["relevance"] > 0, ["query_id", "doc_id"]]
    hits = run[["query_id", "doc_id"]].assign(rank=places(run)).merge(relevant, on=["query_id", "doc_id"])
    total = relevant.groupby("query_id").size()
    found = {name: hits[hits["rank"] < measure["cutoff"]] for name, measure in measures.items()}
    return {name: each.groupby("query_id").size() / total for name, each in found.items()}


def _parsed(name: str) -> Any:
    import ir_measures

    try:
        return ir_measures.parse_measure(name)
    except (NameError, TypeError, ValueError) as error:
        raise SettingError(f"measure {name!r} is not one of ir-measures' (AP@100, R@1, nDCG@10, …)") from error


@dataclass(frozen=True)
class Comparison:
    """The difference of two systems over the same queries and seeds, in the measure's unit."""

    effect: float  # mean of A - B
    error: float  # its standard error
    freedom: float  # degrees of freedom of the t distribution that the error is used with
    queries: int
    seeds: int
    by_query: tuple[float, float] = (0.0, 1)  # variance of the queries, and its freedom
    by_seed: Mapping[int, float] = field(default_factory=dict)  # seed to mean of A - B; empty with one seed

    def interval(self) -> tuple[float, float]:
        """Return the 95 % confidence interval of the effect."""
        half = special.stdtrit(self.freedom, 0.975) * self.error
        return self.effect - half, self.effect + half

    def p_value(self) -> float:
        """Return the two-sided p-value of the hypothesis that there is no effect."""
        return float(2 * special.stdtr(self.freedom, -abs(self._t(0.0))))

    def p_greater(self, null: float = 0.0) -> float:
        """Return the p-value of the hypothesis that the effect is at most `null`."""
        return float(special.stdtr(self.freedom, -self._t(null)))

    def p_less(self, null: float = 0.0) -> float:
        """Return the p-value, in its own tail, of the hypothesis that the effect is at least `null`."""
        return float(special.stdtr(self.freedom, self._t(null)))

    def p_equivalent(self, margin: float) -> float:
        """Return the p-value of two one-sided tests (TOST): the effect is not within plus or minus `margin`."""
        return max(self.p_greater(-margin), self.p_less(margin))

    def _t(self, null: float) -> float:
        if self.error == 0:
            return float(np.sign(self.effect - null)) * np.inf if self.effect != null else 0.0
        return (self.effect - null) / self.error


def in_pairs(*systems: pd.DataFrame) -> list[pd.DataFrame]:
    """Return the systems' values over the queries and seeds that they share; one column has the same for every seed."""
    queries = reduce(pd.Index.intersection, (each.index for each in systems))
    several = [each.columns for each in systems if each.shape[1] > 1] or [systems[0].columns]
    seeds = reduce(pd.Index.intersection, several)
    require(len(seeds) > 0, "the systems have no seed in common", DataError)
    values = (each.loc[queries] if each.shape[1] == 1 else each.loc[queries, seeds] for each in systems)
    return [pd.DataFrame(each.to_numpy(float) + np.zeros(len(seeds)), queries, seeds) for each in values]


def compare(difference: pd.DataFrame, clusters: pd.Series | None = None) -> Comparison:
    r"""Compare two systems by their difference, with queries and seeds both as random effects.

    It has an index of queries and a column for each seed. Queries of one cluster share relevant documents: their
    differences are summed before the variance is taken.

    With :math:`d_{qs}` the difference for query q under seed s, the variance of the mean is
    :math:`\mathrm{Var}_q(\bar d_{q\cdot})/Q + \mathrm{Var}_s(\bar d_{\cdot s})/S`: the paired t-test's, plus what
    another seed would change. It counts the interaction twice, and so errs on the wide side. Degrees of freedom follow
    Satterthwaite.
    """
    queries, seeds = difference.shape
    groups = np.arange(queries) if clusters is None else pd.factorize(clusters.reindex(difference.index))[0]
    require(bool((groups >= 0).all()), "some queries have no cluster", DataError)
    count = len({*groups})
    require(count > 1, "a comparison needs at least two queries (or clusters of queries)", DataError)
    values = difference.to_numpy(dtype=float)  # (Q, S)
    effect = float(values.mean())
    sums = np.bincount(groups, weights=values.mean(axis=1) - effect)
    by_query = count / (count - 1) * float((sums**2).sum()) / queries**2, count - 1
    by_seed = dict(zip(difference, values.mean(axis=0), strict=True)) if seeds > 1 else {}
    return average([Comparison(effect, by_query[0] ** 0.5, count - 1, queries, seeds, by_query, by_seed)])


def average(parts: Sequence[Comparison], pooled: Pieces = ()) -> Comparison:
    """Return the mean of comparisons over data sets, whose variance over seeds is taken after it: a model answers all.

    What other systems tell of that variance is `pooled`; see `between_seeds`.
    """
    count = len(parts)
    of_queries = [(variance / count**2, freedom) for variance, freedom in (part.by_query for part in parts)]
    seeded = [pd.Series(part.by_seed, dtype=float) / count for part in parts if part.by_seed]
    shared = pd.concat(seeded, axis=1, join="inner").sum(axis=1) if seeded else pd.Series(dtype=float)
    # Where they have no two seeds in common, they are other trainings.
    of_seeds = [shared] if len(shared) > 1 else seeded
    of_seeds = [(float(each.var(ddof=1)) / len(each), len(each) - 1) for each in of_seeds]
    effect, (error, freedom) = float(np.mean([part.effect for part in parts])), _joined(of_queries)
    queries, seeds = sum(part.queries for part in parts), min(part.seeds for part in parts)
    by_seed, joined = shared.to_dict() if len(shared) > 1 else {}, _joined([*of_queries, *larger(of_seeds, pooled)])
    return Comparison(effect, *joined, queries, seeds, (error**2, freedom), by_seed)


def between_seeds(means: pd.DataFrame) -> tuple[tuple[float, int], tuple[float, int]]:
    r"""Return the variance between seeds: each system's own, and what all share in a seed; each with its freedom.

    `means` are (S, n), of two systems or more under two seeds or more. The analysis of variance of
    :math:`x_{is} = \mu_i + b_s + e_{is}`: :math:`\mathrm{Var}(e)` is the mean square of what systems and seeds leave,
    with (S - 1)(n - 1) degrees of freedom; :math:`\mathrm{Var}(b)` is that of the seeds' means less
    :math:`\mathrm{Var}(e) / S`, with n - 1. A weighted sum of systems has
    :math:`\sum w_i^2 \mathrm{Var}(e) / n + (\sum w_i)^2 \mathrm{Var}(b) / n`: what two trained systems share goes out
    in their difference, and stays in one to a system that is not trained.
    """
    systems, seeds = means.shape
    centred = means.to_numpy() - means.to_numpy().mean(axis=1, keepdims=True)  # (S, n)
    blocks, freedom = centred.mean(axis=0), (systems - 1) * (seeds - 1)
    alone = float(((centred - blocks) ** 2).sum()) / freedom
    return (alone, freedom), (max(0.0, float(blocks.var(ddof=1)) - alone / systems), seeds - 1)


def larger(own: Pieces, pooled: Pieces) -> Pieces:
    """Return the larger of a comparison's own variance over seeds and the pooled one, with its freedom."""
    # Alone, the pooled one rejects three times too often for a noisy system (tests/evaluation/test_seed_variance.py).
    return max(own, pooled, key=lambda pieces: sum(variance for variance, _ in pieces))


def _joined(pieces: Pieces) -> tuple[float, float]:
    # The standard error of a sum, with its degrees of freedom after Satterthwaite.
    variance = sum(part for part, _ in pieces)
    spread = sum(part**2 / freedom for part, freedom in pieces)
    return variance**0.5, float(variance**2 / spread) if spread > 0 else float(pieces[0][1])


def holm(p_values: Sequence[float]) -> np.ndarray:
    """Return p-values after Holm's step-down correction for the number of tests made together."""
    p_values = np.asarray(p_values, dtype=float)
    order = np.argsort(p_values)
    scaled = p_values[order] * np.arange(len(p_values), 0, -1)
    return np.minimum(1.0, np.maximum.accumulate(scaled))[order.argsort()]


def rows_precision(queries: np.ndarray, documents: np.ndarray, groups: np.ndarray, size: int = 1000) -> float:
    """Return precision@1 of pairs, (n, d), within consecutive blocks of `size`; a document of the group is a hit."""
    # Gillick 2018 (section 2.2) tunes on the precision@1 within a training batch, which says nothing at batch 2.
    blocks = [slice(start, start + size) for start in range(0, len(queries), size)]
    best = [block.start + (queries[block] @ documents[block].T).argmax(axis=1) for block in blocks]
    return float((groups[np.concatenate(best)] == groups).mean())


def rows_reciprocal_rank(scores: np.ndarray, hits: np.ndarray) -> float:
    """Return the mean over rows of candidates, (Q, n), of 1 / rank of the first hit; 0 for a row without one."""
    # Ties and scores that are no numbers count against the model: equal scores are no ranking.
    best = np.where(hits, scores, -np.inf).max(axis=1, keepdims=True)
    ranks = 1 + (~(scores < best) & ~hits).sum(axis=1)
    return float(np.where(hits.any(axis=1), 1 / ranks, 0).mean())


def held_out(collection: Collection, split: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return queries and judgments of a split; `DataError` if it has none."""
    queries, qrels = collection.split(split), collection.judgments(split)
    require(len(queries) > 0, f"collection {collection.name!r} has no {split} queries", DataError)
    return queries, qrels


def round_trip(generated: pd.DataFrame, passages: pd.Series) -> pd.Series:
    """Return whether BM25, with its default settings, finds a query's own passage first: a filter for `generated`.

    `generated` has columns `passage_id` and `query`; `passages` is id to text. `DataError` for another passage's query.
    """
    own = passages.index.get_indexer(generated["passage_id"])
    others = generated["passage_id"][own < 0][:1].tolist()
    require(not others, f"a query is of passage {others}, which is not among the passages", DataError)
    _, rows = BM25().fit(passages.tolist()).search(generated["query"].tolist(), 1)
    return pd.Series(rows[:, 0] == own, index=generated.index, name="round trip")


def query_statistics(generated: pd.DataFrame, passages: pd.Series) -> pd.Series:
    """Return what a decoding gives, in numbers (Liang 2020, Table 5 has the pairs); arguments as in `round_trip`.

    `queries` counts different ones. `distinct-1` and `distinct-2` (Li et al. 2016) are the shares of different words
    and pairs of neighbouring words in a passage's queries, as means over passages. `overlap` is the share of a query's
    words that stand in its passage, and `round trip` that of the queries for which `round_trip` holds.
    """
    require(len(generated) > 0, "there is no query to measure", DataError)
    leads_home, queries = round_trip(generated, passages), [words(query) for query in generated["query"]]
    own = passages.index.get_indexer(generated["passage_id"])
    texts = {row: set(words(passages.iloc[row])) for row in np.unique(own)}
    shares = [np.mean([word in texts[row] for word in query]) for row, query in zip(own, queries, strict=True) if query]

    def distinct(grams: list[list]) -> float:
        passages = (list(chain.from_iterable(each)) for _, each in pd.Series(grams).groupby(own))
        return pd.Series([len(set(each)) / len(each) for each in passages if each], dtype=float).mean()

    return pd.Series({
        "passages": len(passages), "pairs": len(generated), "queries": generated["query"].nunique(),
        "pairs per passage": len(generated) / len(passages), "words per query": np.mean([*map(len, queries)]),
        "distinct-1": distinct(queries), "distinct-2": distinct([list(pairwise(query)) for query in queries]),
        "overlap": np.mean(shares) if shares else np.nan, "round trip": leads_home.mean(),
    })  # fmt: skip
