"""From runs to per-query measures, and from those to comparisons of systems."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce

import numpy as np
import pandas as pd
from scipy import special  # scipy.stats has the same functions, and takes a second to import

from retlib.core.errors import DataError, SettingError, require
from retlib.data.collection import Collection
from retlib.retrieval.runs import places


def evaluate(run: pd.DataFrame, qrels: pd.DataFrame, measures: Sequence[str]) -> pd.DataFrame:
    """Return values of measures by query, computed by ir-measures, in the order of `qrels`.

    Columns `query_id`, `measure`, `value`. The `run` is one of `retlib.retrieval.runs.make_run`, in its order. `qrels`
    have `query_id`, `doc_id` and `relevance`; a query without results scores 0. In ``AP@100`` (Gillick 2018, section
    3.1) the sum of precisions at relevant ranks is over the number of known relevant documents.
    """
    parsed = _parse(measures)
    require(len(qrels) > 0, "there is no judgment to evaluate against", DataError)
    recalls = {str(m): m["cutoff"] for m in parsed if m.NAME == "R" and not set(m.params) - {"cutoff"}}
    parts = [_recalls(run, qrels, recalls)] if recalls else []
    if others := [measure for measure in parsed if str(measure) not in recalls]:
        parts.append(_measured(run, qrels, others))
    values = pd.concat(parts)
    # As asked for, and the queries of each in the order of the judgments.
    asked = [str(measure) for measure in parsed]
    return values.sort_values("measure", key=lambda names: names.map(asked.index), kind="stable", ignore_index=True)


def _measured(run: pd.DataFrame, qrels: pd.DataFrame, measures: Sequence) -> pd.DataFrame:
    """Any measures, by ir-measures."""
    import ir_measures

    # Evaluators order equal scores each in their own way; descending ranks leave them no choice.
    depth = places(run)
    cuts = [measure.params.get("cutoff") for measure in measures]
    # What lies below every cut counts for nothing, and takes most of the time.
    top = depth < (max(cuts) if None not in cuts else np.inf)
    ranked = pd.DataFrame({"query_id": run["query_id"], "doc_id": run["doc_id"], "score": -depth.astype(float)})[top]
    values = {(str(v.measure), v.query_id): v.value for v in ir_measures.iter_calc(measures, qrels, ranked)}
    queries = qrels["query_id"].unique()
    rows = [(q, str(m), float(values.get((str(m), q), 0.0))) for m in measures for q in queries]
    return pd.DataFrame(rows, columns=["query_id", "measure", "value"])


def _recalls(run: pd.DataFrame, qrels: pd.DataFrame, cutoffs: dict[str, int]) -> pd.DataFrame:
    """Recall alone, as ir-measures computes it, fast enough for a hundred thousand queries."""
    relevant = qrels.loc[qrels["relevance"] > 0, ["query_id", "doc_id"]]
    found = run[["query_id", "doc_id"]].assign(rank=places(run)).merge(relevant, on=["query_id", "doc_id"])
    queries = pd.Index(qrels["query_id"].unique())
    row, total = queries.get_indexer(found["query_id"]), relevant.groupby("query_id").size().reindex(queries)
    parts = []
    for name, cutoff in cutoffs.items():
        hits = np.bincount(row[found["rank"] < cutoff], minlength=len(queries))
        # A query without a relevant document has recall 0, as ir-measures has it.
        value = np.nan_to_num(hits / total.to_numpy())
        parts.append(pd.DataFrame({"query_id": queries, "measure": name, "value": value}))
    return pd.concat(parts)


def _parse(measures: Sequence[str]) -> list:
    import ir_measures

    parsed = []
    for name in measures:
        try:
            parsed.append(ir_measures.parse_measure(name))
        except (NameError, TypeError, ValueError) as error:
            known = "AP@100, R@1, nDCG@10, RR@10, P@1"
            raise SettingError(f"measure {name!r} is not one of ir-measures' (for instance {known})") from error
    return parsed


def is_score(name: str) -> bool:
    """Whether a recorded value is one of ir-measures' measures, and no time, size or count."""
    try:
        return bool(_parse([name]))
    except SettingError:
        return False


@dataclass(frozen=True)
class Comparison:
    """The difference of two systems over the same queries and seeds, in the measure's unit."""

    effect: float  # mean of A - B
    error: float  # its standard error
    freedom: float  # degrees of freedom of the t distribution that the error is used with
    queries: int
    seeds: int
    by_query: tuple[float, float] | None = None  # squared error of the queries, and its freedom; None if that is all
    by_seed: Mapping[int, float] = field(default_factory=dict)  # seed to mean of A - B; empty with one seed

    def interval(self) -> tuple[float, float]:
        """The two-sided 95 % confidence interval of the effect."""
        half = special.stdtrit(self.freedom, 0.975) * self.error
        return self.effect - half, self.effect + half

    def p_value(self) -> float:
        """Two-sided p-value of the hypothesis that there is no effect."""
        return float(2 * special.stdtr(self.freedom, -abs(self._t(0.0))))

    def p_greater(self, null: float = 0.0) -> float:
        """One-sided p-value of the hypothesis that the effect is at most `null`."""
        return float(special.stdtr(self.freedom, -self._t(null)))

    def p_less(self, null: float = 0.0) -> float:
        """One-sided p-value of the hypothesis that the effect is at least `null`, in its own tail."""
        return float(special.stdtr(self.freedom, self._t(null)))

    def p_equivalent(self, margin: float) -> float:
        """p-value of two one-sided tests (TOST): the effect is not within plus or minus `margin`."""
        return max(self.p_greater(-margin), self.p_less(margin))

    def smallest(self, level: float = 0.05, power: float = 0.8) -> float:
        """Return the smallest true effect that a one-sided test at this level sees with this power.

        It is the sum of two quantiles of t times the error (Cohen 1988, chapter 2, without the noncentral t).
        """
        return float((special.stdtrit(self.freedom, 1 - level) + special.stdtrit(self.freedom, power)) * self.error)

    def _t(self, null: float) -> float:
        if self.error == 0:
            return float(np.sign(self.effect - null)) * np.inf if self.effect != null else 0.0
        return (self.effect - null) / self.error


def same_seeds(*systems: pd.DataFrame) -> list[pd.DataFrame]:
    """The systems' values over the seeds that they share; one without seeds (one column) goes with any."""
    several = [values.columns for values in systems if values.shape[1] > 1]
    shared = reduce(pd.Index.intersection, several) if several else []
    require(not several or len(shared) > 0, "the systems have no seed in common", DataError)
    return [values if values.shape[1] == 1 else values[shared] for values in systems]


def compare(a: pd.DataFrame, b: pd.DataFrame, clusters: pd.Series | None = None) -> Comparison:
    r"""Compare two systems in pairs, with queries and seeds both as random effects.

    `a` and `b` have an index of queries and a column for each seed. A system without seeds has one column, which is
    compared with every seed of the other. Queries of one cluster share their relevant documents: their differences are
    summed before the variance is taken.

    With :math:`d_{qs}` the difference for query q under seed s, the variance of the mean is
    :math:`\mathrm{Var}_q(\bar d_{q\cdot})/Q + \mathrm{Var}_s(\bar d_{\cdot s})/S`: the paired t-test's, plus what
    another seed would change. It counts the interaction twice, and so errs on the wide side. Degrees of freedom follow
    Satterthwaite.
    """
    require(a.index.equals(b.index), "two systems can only be compared over the same queries", DataError)
    seeds = max(a.shape[1], b.shape[1])
    require(
        1 in (a.shape[1], b.shape[1]) or a.columns.equals(b.columns),
        f"two systems can only be compared over the same seeds (here {list(a.columns)} and {list(b.columns)})",
        DataError,
    )
    difference = a.to_numpy(dtype=float) - b.to_numpy(dtype=float)  # (Q, S), by broadcasting
    effect = float(difference.mean())
    groups = np.arange(len(a)) if clusters is None else pd.factorize(clusters.reindex(a.index))[0]
    require(bool((groups >= 0).all()), "some queries of the comparison have no cluster", DataError)
    sums = np.bincount(groups, weights=difference.mean(axis=1) - effect)
    count = len(sums)
    require(count > 1, "a comparison needs at least two queries (or clusters of queries)", DataError)
    by_query = count / (count - 1) * float((sums**2).sum()) / len(a) ** 2, count - 1
    columns = a.columns if a.shape[1] == seeds else b.columns
    by_seed = dict(zip(columns, difference.mean(axis=0), strict=True)) if seeds > 1 else {}
    error, freedom = _joined([by_query, *_of_seeds(pd.Series(by_seed, dtype=float))])
    return Comparison(effect, error, freedom, len(a), seeds, by_query, by_seed)


def average(parts: Sequence[Comparison], pooled: Sequence[tuple[float, float]] = ()) -> Comparison:
    """Return the mean of comparisons over the queries of several data sets.

    The errors of queries are independent. Seeds are not: one model may answer several data sets, so the variance over
    seeds is taken after the mean over these. What other systems tell of it is `pooled`; see `between_seeds`.
    """
    count = len(parts)
    pieces = [part.by_query or (part.error**2, part.freedom) for part in parts]
    pieces = [(variance / count**2, freedom) for variance, freedom in pieces]
    error, freedom = _joined(pieces)
    by_query = error**2, freedom
    seeded = [pd.Series(part.by_seed, dtype=float) / count for part in parts if part.by_seed]
    shared = pd.concat(seeded, axis=1, join="inner").sum(axis=1) if seeded else pd.Series(dtype=float)
    # Where they have no two seeds in common, they are other trainings.
    together = len(shared) > 1
    own = [piece for values in ([shared] if together else seeded) for piece in _of_seeds(values)]
    error, freedom = _joined(pieces + larger(own, pooled))
    queries, seeds = sum(part.queries for part in parts), min(part.seeds for part in parts)
    effect, by_seed = float(np.mean([part.effect for part in parts])), shared.to_dict() if together else {}
    return Comparison(effect, error, freedom, queries, seeds, by_query, by_seed)


def _of_seeds(values: pd.Series) -> list[tuple[float, float]]:
    """The variance of a mean over seeds with its degrees of freedom, where there are several."""
    count = len(values)
    return [(float(values.var(ddof=1)) / count, count - 1)] if count > 1 else []


def between_seeds(means: pd.DataFrame) -> tuple[tuple[float, int], tuple[float, int]]:
    r"""Return the variance between seeds: each system's own, and what all share in a seed; each with its freedom.

    `means` has a row for each of two systems or more and a column for each of two seeds or more. The analysis of
    variance of :math:`x_{is} = \mu_i + b_s + e_{is}` over S systems and n seeds: :math:`\mathrm{Var}(e)` is the mean
    square of what systems and seeds leave, with (S - 1)(n - 1) degrees of freedom; :math:`\mathrm{Var}(b)` is that of
    the seeds' means less :math:`\mathrm{Var}(e) / S`, with n - 1. A weighted sum of systems has
    :math:`\sum w_i^2 \mathrm{Var}(e) / n + (\sum w_i)^2 \mathrm{Var}(b) / n`: what two trained systems share goes out
    in their difference, and stays in one to a system that is not trained.
    """
    systems, seeds = means.shape
    centred = means.to_numpy() - means.to_numpy().mean(axis=1, keepdims=True)  # (S, n)
    blocks, freedom = centred.mean(axis=0), (systems - 1) * (seeds - 1)
    alone = float(((centred - blocks) ** 2).sum()) / freedom
    return (alone, freedom), (max(0.0, float(blocks.var(ddof=1)) - alone / systems), seeds - 1)


def larger(own: Sequence[tuple[float, float]], pooled: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the larger of a comparison's own variance over seeds and the pooled one, with its freedom.

    What `between_seeds` pools is the average system's: alone, it rejects three times too often for a noisy system
    (``tests/evaluation/test_seed_variance.py``).
    """
    totals = (sum(variance for variance, _ in pieces) for pieces in (own, pooled))
    return list(max(zip(totals, (own, pooled), strict=True), key=lambda each: each[0])[1])


def _joined(pieces: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """The standard error of a sum, from variances with their degrees of freedom; its own after Satterthwaite."""
    variance = sum(part for part, _ in pieces)
    spread = sum(part**2 / freedom for part, freedom in pieces)
    return variance**0.5, float(variance**2 / spread) if spread > 0 else float(pieces[0][1])


def holm(p_values: Sequence[float]) -> np.ndarray:
    """Holm's step-down correction of p-values for the number of tests made together."""
    p_values = np.asarray(p_values, dtype=float)
    order = np.argsort(p_values)
    scaled = p_values[order] * np.arange(len(p_values), 0, -1)
    corrected = np.empty_like(p_values)
    corrected[order] = np.minimum(1.0, np.maximum.accumulate(scaled))
    return corrected


def rows_precision(queries: np.ndarray, documents: np.ndarray, groups: np.ndarray, size: int = 1000) -> float:
    """Return precision@1 within fixed rows of `size` candidates: consecutive blocks of validation pairs.

    Gillick 2018 (section 2.2) tunes on the precision@1 within a training batch, which says nothing at batch 2.
    Encodings have shape (n, d). A document of the same group is as good as the query's own.
    """
    hits = []
    for start in range(0, len(queries), size):
        block = slice(start, start + size)
        best = (queries[block] @ documents[block].T).argmax(axis=1)
        hits.append(float((groups[block][best] == groups[block]).mean()) * len(best))
    return sum(hits) / len(queries)


def rows_reciprocal_rank(scores: np.ndarray, hits: np.ndarray) -> float:
    """Return the mean over rows of candidates of 1 / rank of the first hit; 0 for a row without one.

    Arrays have shape (Q, n); `scores` are -inf where a row has fewer. Ties and scores that are no numbers count against
    the model: equal scores are no ranking.
    """
    best = np.where(hits, scores, -np.inf).max(axis=1, keepdims=True)
    ranks = 1 + (~(scores < best) & ~hits).sum(axis=1)
    return float(np.where(hits.any(axis=1), 1 / ranks, 0).mean())


def held_out(collection: Collection, split: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Queries and judgments of a split; `DataError` if it has none."""
    queries, qrels = collection.split(split), collection.judgments(split)
    require(len(queries) > 0, f"collection {collection.name!r} has no {split} queries", DataError)
    return queries, qrels
