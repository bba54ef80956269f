"""Query generation: a generator learns from labels and writes queries for passages (Liang 2020).

::

    generator = QueryGenerator(GeneratorArchitecture(), articles, Schedule(steps=400), learns_from=collection)
    generator.queries(passages)

What was trained and written are kept as artefacts. What trains on it is in `retlib.systems.generated`.
"""

from __future__ import annotations

import copy
import hashlib
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from retlib.core import cache, runtime
from retlib.core.errors import DataError, require
from retlib.data import passages
from retlib.data.articles import Articles
from retlib.data.collection import Collection
from retlib.data.pairs import Pairs
from retlib.data.splits import hash_position
from retlib.data.text import TokenTable
from retlib.models.decoding import Decoding, Nucleus, passage_keys
from retlib.models.generator import Generator, GeneratorArchitecture
from retlib.systems.system import System
from retlib.systems.system import fit as fit_retriever
from retlib.training.tasks import WritingTask
from retlib.training.trainer import Schedule, train

# Versions of what trains generators (who changes a loss curve raises it: tests/systems/test_golden_generator.py), and
# of what writes.
VERSION, WRITTEN = 2, 1

# Share of the articles whose pairs choose a generator's weights, and how many held-out pairs are looked at.
HELD_OUT, VALIDATION = 0.1, 512
# Passages in a batch, and in a part of the output: what a kill can cost.
BATCH, PART = 32, 512


# --- generators, as chapters declare them ----------------------------------------------------------


@dataclass(frozen=True)
class QueryGenerator:
    """How a generator is made, from which labels it learns, and how it writes."""

    architecture: GeneratorArchitecture
    articles: Articles  # whose vocabulary it has, if it starts from no checkpoint
    training: Schedule  # for BART-large 5 epochs, batches of 96, a learning rate of 3e-5 (Liang 2020, section 4)
    decoding: Decoding = Nucleus()
    # Without it the generator cannot be used. Where its documents are sentences, the generator reads a passage sentence
    # by sentence, too; see `retlib.data.passages.sentences`.
    learns_from: Collection | None = None
    # A retriever of the same vocabulary and width, from whose token embeddings it starts. Stages hold what has no hash.
    embeddings: System | None = field(default=None, hash=False)
    seed: int = 0  # not that of a retriever that trains on its queries; in the paper one generator serves all

    def __post_init__(self) -> None:
        wrong = "a checkpoint is pre-trained already: leave embeddings out"
        require(not (self.architecture.checkpoint and self.embeddings), wrong)

    def learning_from(self, collection: Collection | None) -> QueryGenerator:
        """The same generator with other labels."""
        return replace(self, learns_from=collection)

    def seeded(self, seed: int) -> QueryGenerator:
        """The same generator of another seed."""
        return replace(self, seed=seed)

    def start(self) -> Generator:
        """What learns from labels: random weights but for given embeddings, or a checkpoint."""
        wordpiece = None if self.architecture.checkpoint else self.articles.tokenizer
        fresh = Generator.fresh(self.architecture, wordpiece, self.seed)
        if self.embeddings:
            fresh.take_embeddings(fit_retriever(self.embeddings, self.learns_from, self.seed))
        return fresh

    def fit(self) -> Generator:
        """The generator, trained or found trained."""
        return _fitted(self)

    @property
    def settings(self) -> dict[str, Any]:
        """What made it, as recorded beside results: JSON values."""
        return {
            **asdict(self.architecture),
            "learns from": self.learns_from.name,
            "training": asdict(self.training),
            "embeddings": self.embeddings.settings if self.embeddings else {},
        }

    def queries(self, documents: pd.DataFrame, how: Decoding | None = None) -> pd.DataFrame:
        """Return queries for passages (index `passage_id`; `text`), by default by its own decoding; see `generate`."""
        how, texts = how or self.decoding, documents["text"]
        if "sentence" not in self.learns_from.documents:
            return generate(self.fit(), texts, how, self.seed)
        return passages.of_passages(generate(self.fit(), passages.sentences(texts), how, self.seed))


@lru_cache(maxsize=4)  # asked for with every system and seed
def _fitted(made: QueryGenerator) -> Generator:
    wrong = "a generator needs labels to learn from: learning_from(collection)"
    require(made.learns_from is not None, wrong, DataError)
    return fit(made.start(), labelled_pairs(made.learns_from), made.training, made.seed)


# --- training --------------------------------------------------------------------------------------


def labelled_pairs(collection: Collection) -> pd.DataFrame:
    """Return the queries of a collection's train and dev splits, each with the text that is relevant to it.

    Columns `query`, `passage` (a document's `sentence`, or else its `text`) and `split`, "train" or "dev". All pairs of
    one article, or of one document where there are no articles, are on one side: a tenth is dev, by a hash.
    """
    documents = collection.documents
    judged = pd.concat([collection.relevant(split) for split in ("train", "dev")])
    found = documents.loc[judged["doc_id"]]
    together = found["article"] if "article" in found else found.index.to_series()
    held_out = [hash_position(str(name)) < HELD_OUT for name in together]
    return pd.DataFrame({
        "query": collection.queries["text"][judged["query_id"]].to_numpy(),
        "passage": found["sentence" if "sentence" in found else "text"].to_numpy(),
        "split": np.where(held_out, "dev", "train"),
    })  # fmt: skip


def fit(start: Generator, pairs: pd.DataFrame, schedule: Schedule, seed: int) -> Generator:
    """Train a generator on labelled pairs, or find it trained.

    The start is fresh, or trained before; the pairs are those of `labelled_pairs`. The weights that are kept are the
    best on `VALIDATION` held-out pairs, by their mean log-likelihood. Raises `DataError` if no pair trains, or none is
    held out.
    """
    for split in ("train", "dev"):
        require(bool((pairs["split"] == split).any()), f"of {len(pairs)} pairs none has split = {split!r}", DataError)

    require(schedule.chunk is None, "a generator is trained without chunks")
    settings = {
        "start": start.name or start.fingerprint, "pairs": _digest(pairs), "schedule": asdict(schedule), "seed": seed,
        "threads": runtime.threads(),
    }  # fmt: skip

    def make(folder: Path) -> None:
        generator = Generator(start.architecture, start.tokenizer, copy.deepcopy(start.model))
        seen, unseen = (_tokenized(start, pairs[pairs["split"] == split]) for split in ("train", "dev"))
        unseen = unseen.take(np.sort(np.random.default_rng(0).permutation(len(unseen))[:VALIDATION]))
        task = WritingTask(generator.model, seen, schedule.batch_size, seed)

        def validate() -> float:
            with runtime.autocast(schedule.precision):
                return -task.loss(unseen).item()

        label = f"query generator, seed {seed}"
        generator.history = train(task, schedule, validate, seed, folder, label, pairs=len(seen))
        generator.save(folder)

    return Generator.load(cache.artefact("generator", VERSION, settings, make))


def _tokenized(generator: Generator, pairs: pd.DataFrame) -> Pairs:
    # A passage stands behind each of its queries, and is tokenized once.
    places, distinct = pd.factorize(pairs["passage"])
    return Pairs(generator.tokenize(pairs["query"]), generator.passages(distinct).take(places))


# --- writing ---------------------------------------------------------------------------------------


def generate(generator: Generator, texts: pd.Series, how: Decoding, seed: int) -> pd.DataFrame:
    """Write queries for passages (id to text), or find them written.

    Returns columns `passage_id`, `query`, `log_likelihood` (of the whole query) and `tokens` (its end not counted),
    sorted by passage, the likeliest query first. Of a passage's equal queries the likelier stays; empty ones are left
    out. ``.attrs["name"]`` is the address of the artefact.

    A passage's queries depend on its id, its text and the seed of a decoding that draws, not on the other texts but for
    the rounding of sums. Raises `DataError` if there is no passage, or an id is there twice.

    Liang 2020, section 6, removes duplicates and names samples of one passage as their source: 422,309 of at most
    423,915 pairs of beam search leave little room for those of two passages, which stay here.

    Passages are taken in the order of lengths, in parts that are written as they are done: a killed call goes on from
    the last.
    """
    require(len(texts) > 0, "there is no passage to write queries for", DataError)
    repeated = texts.index[texts.index.duplicated()]
    require(len(repeated) == 0, f"passage id {repeated[:1].tolist()} is repeated", DataError)
    seed = seed if isinstance(how, Nucleus) else 0  # nothing else is drawn
    settings = {
        "generator": generator.name or generator.fingerprint, "passages": _digest(texts.to_frame(), index=True),
        **how.settings, "seed": seed, "threads": runtime.threads(),
    }  # fmt: skip

    def make(folder: Path) -> None:
        table = generator.passages(texts)
        order = np.argsort(table.lengths, kind="stable")

        def write(part: slice) -> Callable[[Path], None]:
            rows = order[part]
            return _written(generator, texts.index[rows], table.take(rows), how, seed).to_parquet

        told = {"desc": f"{how.name} queries", "unit": "passage"}
        parts = cache.parts(folder, len(order), PART, "part.parquet", write, **told)
        written = pd.concat(map(pd.read_parquet, parts))
        order = ["passage_id", "log_likelihood", "query"]
        written = written.sort_values(order, ascending=[True, False, True], kind="stable", ignore_index=True)
        written.to_parquet(folder / "queries.parquet")
        for part in folder.glob("part-*"):
            part.unlink(missing_ok=True)

    folder = cache.artefact("generated", WRITTEN, settings, make)
    found = pd.read_parquet(folder / "queries.parquet")
    found.attrs["name"] = folder.name
    return found


def _written(generator: Generator, ids: pd.Index, table: TokenTable, how: Decoding, seed: int) -> pd.DataFrame:
    """The queries of some passages of like length."""
    keys, frames = passage_keys(ids, seed), []
    for start in range(0, len(ids), BATCH):
        rows = np.arange(start, min(start + BATCH, len(ids)))
        found = how.decode(generator.model, table.take(rows), keys[rows], generator.architecture.query_length)
        written = [tidy(generator.tokenizer.decode(found.queries.row(i))) for i in range(len(found.queries))]
        frames.append(pd.DataFrame({
            "passage_id": ids[rows[found.passages]], "query": written,
            "log_likelihood": found.log_likelihoods, "tokens": found.queries.lengths,
        }))  # fmt: skip
    written = pd.concat(frames, ignore_index=True)
    # The likeliest of a passage comes first.
    return written[written["query"] != ""].drop_duplicates(["passage_id", "query"])


_APOSTROPHE = re.compile(r"(\w) (['’]) (s|t|d|m|re|ve|ll)\b")
_HYPHEN = re.compile(r"(?<=\w) ([-–/]) (?=\w)")


def tidy(query: str) -> str:
    """A query without the spaces that tokens leave about apostrophes and hyphens."""
    return _HYPHEN.sub(r"\1", _APOSTROPHE.sub(r"\1\2\3", query)).strip()


def _digest(frame: pd.DataFrame, index: bool = False) -> str:
    return hashlib.sha256(pd.util.hash_pandas_object(frame, index=index).to_numpy().tobytes()).hexdigest()
