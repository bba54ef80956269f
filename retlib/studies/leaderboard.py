"""The leaderboard: its systems, their settings chosen with equal budgets, their results (the last chapter)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from retlib.core import runtime
from retlib.core.errors import DataError, require
from retlib.core.rules import POSITIVE, RATE, Rule, each_of, number
from retlib.evaluation.measures import evaluate
from retlib.retrieval import runs
from retlib.retrieval.lexical import BM25, RM3
from retlib.studies import ltre_study, zero_shot_study
from retlib.studies.board import DEPTH, LABELS, PRETRAINING, QUERIES, READS_FROM, Board, name_of
from retlib.studies.experiment import Experiment, Outcome
from retlib.systems import ltre, recipes, reranking, zero_shot
from retlib.systems.dense import Schedule
from retlib.systems.ltre import Method
from retlib.systems.recipes import Recipe
from retlib.systems.reranking import Lesson

MEASURES = ["RR@10", "R@1", "R@10", "R@100", "nDCG@10"]
CHOSEN_BY = "RR@10"
STARTS = ((), (PRETRAINING,), (QUERIES,), (PRETRAINING, QUERIES))
# What may follow a start: nothing, labels, and then Zhan's training on what is retrieved.
ENDS = ((), (LABELS,), (LABELS, ltre.LTRE))
# Zhan's other negatives, from the start that comes nearest to the paper's.
RIVALS = ((PRETRAINING, LABELS, "BM25 Neg"), (PRETRAINING, LABELS, "BM25 Neg", "Async ANN"))
LONGEST = (*READS_FROM, ltre.LTRE)
BM25_TUNED, HYBRID = "BM25, tuned", " + BM25"
# Gillick's losses whose negatives are in the batch; the fourth needs labelled negatives.
WORDS = {f"BoW | {name.replace('_', ' ')}": name for name in recipes.METHODS if name.startswith("in_batch")}


def chains() -> list[tuple[str, ...]]:
    """The dense systems, each a tuple of links."""
    grid = [(*start, *end) for start, end in product(STARTS, ENDS)]
    return [*(chain for chain in grid if chain), *RIVALS]


def _by_chain(board: Board, chain: tuple[str, ...], seed: int, split: str = "test") -> pd.DataFrame:
    return ltre.rank(board.trained(chain, seed).retriever, board.ranking, split)


# --- tuning ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Budget:
    """The settings that every method may try; as many for each.

    Parameters
    ----------
    bm25 : sequence of (float, float)
        k1 and b.
    words, labels, ranked, query : sequence of float
        Learning rates of each loss of bag-of-words encoders, of training on labels, of LTRe's rivals, and of LTRe.

    Raises
    ------
    SettingError
        If one may try more than another.
    """

    bm25: Sequence[tuple[float, float]]
    words: Sequence[float]
    labels: Sequence[float]
    ranked: Sequence[float]
    query: Sequence[float]

    def __post_init__(self) -> None:
        counts = {name: len(values) for name, values in vars(self).items()}
        same = len(set(counts.values())) == 1
        require(same, f"every method must try as many settings as the others; here they try {counts}")


def tune(board: Board, budget: Budget, seed: int) -> tuple[Board, pd.DataFrame]:
    """Choose every method's setting on validation queries.

    Returns
    -------
    Board
        With what was chosen. The rate of BM25's negatives is that of asynchronous ones. Neither pre-training nor
        generated queries are tuned.
    DataFrame
        The trials: `method`, `setting`, the measure that chooses, and whether it is `chosen`.
    """
    tables = []

    def choose(method: str, boards: Mapping[str, Board], run: Callable[[Board], pd.DataFrame]) -> Board:
        values = {setting: _validated(each, run(each)) for setting, each in boards.items()}
        best = max(values, key=values.__getitem__)
        rows = [(method, setting, value, setting == best) for setting, value in values.items()]
        tables.append(pd.DataFrame(rows, columns=["method", "setting", CHOSEN_BY, "chosen"]))
        return boards[best]

    lexical = {f"k1 {k1:g}, b {b:g}": replace(board, lexical=BM25(k1=k1, b=b)) for k1, b in budget.bm25}
    board = choose("BM25", lexical, lambda each: each.by_words(each.lexical, "dev"))
    for name, method in WORDS.items():
        bags = {_rate(rate): _with_words(board, method, rate) for rate in budget.words}
        board = choose(name, bags, lambda each, method=method: each.by_bags(each.bag_of_words(method, seed), "dev"))
    labelled = {_rate(rate): replace(board, labels=replace(board.labels, learning_rate=rate)) for rate in budget.labels}
    board = choose("labels", labelled, lambda each: _by_chain(each, (LABELS,), seed, "dev"))
    both = {_rate(rate): replace(board, both=replace(board.both, learning_rate=rate)) for rate in budget.ranked}
    board = choose("BM25 Neg", both, lambda each: _by_chain(each, (LABELS, "BM25 Neg"), seed, "dev"))
    queries = {_rate(rate): replace(board, query=replace(board.query, learning_rate=rate)) for rate in budget.query}
    board = choose(ltre.LTRE, queries, lambda each: _by_chain(each, (LABELS, ltre.LTRE), seed, "dev"))
    return board, pd.concat(tables, ignore_index=True)


def _with_words(board: Board, method: str, rate: float) -> Board:
    return replace(board, recipes={**board.recipes, method: replace(board.recipes[method], learning_rate=rate)})


def _rate(rate: float) -> str:
    return f"learning rate {rate:g}"


def _validated(board: Board, run: pd.DataFrame) -> float:
    return 100 * float(evaluate(run, board.target.judgments("dev"), [CHOSEN_BY])["value"].mean())


# --- a notebook's parameters -----------------------------------------------------------------------


def _constants(name: str, value: Any) -> None:
    """A rule: k1 and b."""
    valid = isinstance(value, list) and len(value) == 2
    require(valid, f"{name} = {value!r} must be a list of two numbers, k1 and b")
    number(0)(f"{name}, k1", value[0])
    number(0, 1)(f"{name}, b", value[1])


# Those of Part III's generator and retriever, of Part IV's training by ranking, and of the rest.
RULES: dict[str, Rule] = {
    **zero_shot_study.COMMON,
    **ltre_study.RANKED_RULES,
    "ranked_steps": POSITIVE,
    "words_epochs": POSITIVE,
    "words_batch": number(2, whole=True),
    "reader_steps": POSITIVE,
    "reader_batch": POSITIVE,
    "reader_rate": RATE,
    "reader_negatives": POSITIVE,
    "read": POSITIVE,
    "timed": POSITIVE,
    "bm25_trials": each_of(_constants),
    "words_rates": each_of(RATE),
    "label_rates": each_of(RATE),
    "ranked_rates": each_of(RATE),
    "query_rates": each_of(RATE),
}


def boards(p: Mapping[str, Any]) -> list[Board]:
    """The boards that a notebook's parameters describe, one for each target; nothing is tuned yet.

    Raises
    ------
    DataError
        If a target has no labels to train on, or none to choose settings on.
    """
    common = {"batch_size": p["batch"], "optimizer": p["optimizer"]}
    both = Method("BM25 Neg", p["ranked_steps"], "both", "ranknet", n=p["negatives"], interval=p["interval"], **common)
    query = Method(ltre.LTRE, p["query_steps"], "query", p["query_loss"], n=p["retrieved"], **common)
    recipe = Recipe(batch_size=p["words_batch"], epochs=p["words_epochs"])
    by_method = {method: replace(recipe, method=method) for method in WORDS.values()}
    lesson = Lesson(Schedule(p["reader_steps"], p["reader_batch"], p["reader_rate"]), p["reader_negatives"])
    studies = zero_shot_study.studies(p)
    labels = Schedule(p["steps"], p["batch"], p["rate"])
    made = [(study, target) for study in studies.values() for target in study.targets]
    for _, target in made:
        judged = target.qrels["query_id"][target.qrels["relevance"] > 0]
        splits = set(target.queries["split"][judged.unique()])
        wrong = f"{target.name!r} has no {{}} questions with a relevant document; a leaderboard needs them"
        for split in ("train", "dev", "test"):
            require(split in splits, wrong.format(split), DataError)
    return [Board(study, target, labels, both, query, by_method, lesson) for study, target in made]


def budget(p: Mapping[str, Any]) -> Budget:
    """What every method may try."""
    return Budget(p["bm25_trials"], p["words_rates"], p["label_rates"], p["ranked_rates"], p["query_rates"])


# --- recording -------------------------------------------------------------------------------------


def record(experiment: Experiment, board: Board, seeds: Sequence[int], read: int, timed: int) -> None:
    """Record every system on the test queries, and what a question takes.

    Parameters
    ----------
    read : int
        Results of the longest chain, fused with BM25, that the last model reads.
    timed : int
        Questions that are asked one by one, to take the time.
    """
    _record_lexical(experiment, board)
    for seed in seeds:
        _record_words(experiment, board, seed)
        for chain in runtime.progress(chains(), desc=f"chains, seed {seed}", unit="chain"):
            _record_chain(experiment, board, chain, seed)
        _record_reader(experiment, board, seed, read)
        experiment.record_latency(board.target, answers(board, seed, read), timed, seed)


def _record_lexical(experiment: Experiment, board: Board) -> None:
    """BM25 with its defaults, tuned, with feedback, and over documents expanded by their generated queries."""
    for name, system in {"BM25": BM25(), BM25_TUNED: board.lexical, "BM25+RM3": RM3()}.items():
        outcome = Outcome(board.by_words(system), system.settings)
        experiment.measure(name, board.target, 0, outcome, measures=MEASURES)
    expanded = zero_shot.expand(board.ranking.texts, board.study.generated(board.target.documents))
    run = board.lexical.rank(expanded, board.target.split("test")["text"], depth=DEPTH)
    outcome = Outcome(run, board.lexical.settings, seconds=board.study.generator_seconds)
    experiment.measure(f"{BM25_TUNED}, expanded", board.target, 0, outcome, measures=MEASURES)


def _record_words(experiment: Experiment, board: Board, seed: int) -> None:
    for name, method in WORDS.items():
        trained = board.bag_of_words(method, seed)
        parameters, history = asdict(board.recipes[method]), trained.history
        outcome = Outcome(board.by_bags(trained), parameters, history.best_step, history.seconds)
        experiment.measure(name, board.target, seed, outcome, measures=MEASURES)


def _record_chain(experiment: Experiment, board: Board, chain: tuple[str, ...], seed: int) -> None:
    seconds, run = board.trained(chain, seed).seconds, _by_chain(board, chain, seed)
    for name, found in {name_of(chain): run, name_of(chain) + HYBRID: board.fused(run)}.items():
        outcome = Outcome(found, board.settings(chain), seconds=seconds)
        experiment.measure(name, board.target, seed, outcome, measures=MEASURES)


def _reading(read: int) -> str:
    return f"{name_of(LONGEST)}{HYBRID}, read {read}"


def _record_reader(experiment: Experiment, board: Board, seed: int, read: int) -> None:
    reader, seconds = board.reader(seed), board.trained(LONGEST, seed).seconds
    run = reranking.rerank(board.fused(_by_chain(board, LONGEST, seed)), read, reader, board.target)
    parameters = {**board.settings(LONGEST), "lesson": asdict(board.lesson)}
    outcome = Outcome(run, parameters, seconds=seconds + reader.history.seconds)
    experiment.measure(_reading(read), board.target, seed, outcome, measures=MEASURES)


def answers(board: Board, seed: int, read: int) -> dict[str, Callable[[int], np.ndarray]]:
    """What answers the test query of a number, from its text to `DEPTH` rows of documents, best first; by system."""
    questions = board.target.split("test")["text"].tolist()
    retriever, reader = board.trained(LONGEST, seed).retriever, board.reader(seed)
    lexical = replace(board.lexical).fit(board.ranking.texts.tolist())
    dense = ltre.answering(retriever, board.ranking)

    def by_words(number: int) -> np.ndarray:
        return lexical.search([questions[number]], DEPTH)[1][0]

    def by_vectors(number: int) -> np.ndarray:
        return dense(questions[number], DEPTH)

    def hybrid(number: int) -> np.ndarray:
        return runs.reciprocal_ranks([by_vectors(number)[None], by_words(number)[None]])[1][0, :DEPTH]

    def reading(number: int) -> np.ndarray:
        rows = hybrid(number)
        first = rows[:read][rows[:read] >= 0]
        ordered = reader.order(retriever.tokenize([questions[number]]), board.ranking.benchmark.documents, first)
        return np.concatenate([ordered, rows[len(first) :]])

    longest = name_of(LONGEST)
    return {BM25_TUNED: by_words, longest: by_vectors, longest + HYBRID: hybrid, _reading(read): reading}
