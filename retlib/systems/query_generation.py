"""Query generation (Liang 2020), in Part III and chapters 51 and 60: who writes queries, and what is made of them.

::

    generator = QueryGenerator(GeneratorArchitecture(), articles, Schedule(steps=400), learns_from=collection)
    start + Stage(data=Generated(generator), steps=300)  # on queries that it wrote for the target's own passages
    Lexical(BM25(), expansion=generator)

What was trained and written are kept as artefacts.
"""

import copy
import re
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd

from retlib.core import cache, runtime
from retlib.core.errors import DataError, require
from retlib.data import passages
from retlib.data.articles import Articles, OutOfTarget
from retlib.data.collection import Collection, hash_position, with_copies
from retlib.data.tokenized import Pairs
from retlib.models.generator import Decoding, Generator, GeneratorArchitecture, Nucleus, passage_keys
from retlib.systems.ranking import table
from retlib.systems.system import System, fit
from retlib.systems.training_data import CollectionQueries
from retlib.training.tasks import WritingTask
from retlib.training.trainer import Schedule, train

# Versions of what trains generators (who changes a loss curve raises it: tests/systems/test_golden.py), and of what
# writes.
VERSION, WRITTEN = 2, 2
# Share of the articles whose pairs choose a generator's weights, and of the passages whose queries choose a
# retriever's; how many pairs, and passages, these are at most.
HELD_OUT, VALIDATION, MOST_HELD_OUT = 0.1, 512, 200
# Passages in a batch, and in a part of the output: what a kill can cost.
BATCH, PART = 32, 512


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

    def seeded(self, seed: int) -> Self:
        return replace(self, seed=seed)

    @lru_cache(maxsize=4)  # noqa: B019 - asked for with every system and seed
    def fit(self) -> Generator:
        """Return the generator, trained, or found trained; `DataError` without labels."""
        require(self.learns_from is not None, "a generator needs labels: learns_from = a collection", DataError)
        tokenizer = None if self.architecture.checkpoint else self.articles.tokenizer
        start = Generator.fresh(self.architecture, tokenizer, self.seed)
        if self.embeddings:
            start.take_embeddings(fit(self.embeddings, self.learns_from, self.seed))
        return train_generator(start, writing_pairs(self.learns_from), self.training, self.seed)

    @property
    def settings(self) -> dict[str, Any]:
        """What made it, as recorded beside results: JSON values."""
        embeddings = self.embeddings.settings if self.embeddings else {}
        learning = {"learns from": self.learns_from.name, "training": asdict(self.training), "embeddings": embeddings}
        return {**asdict(self.architecture), **learning}

    def queries(self, documents: pd.DataFrame, how: Decoding | None = None) -> pd.DataFrame:
        """Return queries for passages (index `passage_id`; `text`), by default by its own decoding; see `generate`."""
        how, texts = how or self.decoding, documents["text"]
        if "sentence" not in self.learns_from.documents:
            return generate(self.fit(), texts, how, self.seed)
        return passages.of_passages(generate(self.fit(), passages.sentences(texts), how, self.seed))


def writing_pairs(collection: Collection) -> pd.DataFrame:
    """Return the queries of a collection's train and dev splits, each with the text that is relevant to it.

    Columns `query`, `passage` (a document's `sentence`, or else its `text`) and `split`, "train" or "dev". All pairs of
    one article, or of one document where there are no articles, are on one side: a tenth is dev, by a hash.
    """
    judged = pd.concat([collection.relevant(split) for split in ("train", "dev")])
    documents = collection.documents.loc[judged["doc_id"]]
    groups = documents["article"] if "article" in documents else documents.index
    split = ["dev" if hash_position(str(name)) < HELD_OUT else "train" for name in groups]
    query = collection.queries["text"][judged["query_id"]].to_numpy()
    passage = documents["sentence" if "sentence" in documents else "text"].to_numpy()
    return pd.DataFrame({"query": query, "passage": passage, "split": split})


def train_generator(start: Generator, pairs: pd.DataFrame, schedule: Schedule, seed: int) -> Generator:
    """Train a generator, fresh or trained before, on pairs as `writing_pairs` has them, or find it trained.

    The weights that are kept are the best on `VALIDATION` held-out pairs, by their mean log-likelihood. Raises
    `DataError` if no pair trains, or none is held out.
    """
    for split in ("train", "dev"):
        require(bool((pairs["split"] == split).any()), f"of {len(pairs)} pairs none has split = {split!r}", DataError)
    settings = {"start": start.name or start.fingerprint, "pairs": _digest(pairs), "schedule": asdict(schedule)}
    settings |= {"seed": seed, "threads": runtime.threads()}

    def make(folder: Path) -> None:
        # A passage stands behind each of its queries, and is tokenized once.
        places, distinct = pd.factorize(pairs["passage"])
        whole = Pairs(start.tokenize(pairs["query"]), start.passages(distinct).take(places))
        seen, unseen = (whole.take(np.flatnonzero(pairs["split"] == split)) for split in ("train", "dev"))
        generator = replace(start, model=copy.deepcopy(start.model))
        unseen = unseen.take(np.sort(np.random.default_rng(0).permutation(len(unseen))[:VALIDATION]))
        task = WritingTask(generator.model, seen, schedule.batch_size, seed)

        def validate() -> float:
            with runtime.autocast(schedule.precision):
                return -task.loss(unseen).item()

        generator.history = train(task, schedule, validate, seed, folder, f"query generator, seed {seed}")
        generator.save(folder)

    return Generator.load(cache.artefact("generator", VERSION, settings, make))


def generate(generator: Generator, texts: pd.Series, how: Decoding, seed: int) -> pd.DataFrame:
    """Write queries for passages (id to text), or find them written; `DataError` if there is no passage.

    Returns columns `passage_id`, `query`, `log_likelihood` (of the whole query) and `tokens` (its end not counted),
    sorted by passage, the likeliest query first. Of a passage's equal queries the likelier stays (Liang 2020, section
    6, removes duplicates); empty ones are left out. They depend on its id, its text and the seed of a decoding that
    draws. Passages are taken in the order of lengths, in parts: a killed call goes on from the last.
    """
    require(len(texts) > 0, "there is no passage to write queries for", DataError)
    seed = seed if isinstance(how, Nucleus) else 0  # nothing else is drawn
    settings = {"generator": generator.name or generator.fingerprint, **how.settings, "seed": seed}
    settings["passages"] = _digest(texts.reset_index())
    tokens, longest, parts = generator.passages(texts), generator.architecture.query_length, []
    order, keys = np.argsort(tokens.lengths, kind="stable"), passage_keys(texts.index, seed)
    for start in runtime.progress(range(0, len(order), PART), desc=f"{how.name} queries", unit="part"):

        def make(rows: np.ndarray = order[start : start + PART]) -> pd.DataFrame:
            frames = []
            for batch in np.split(rows, range(BATCH, len(rows), BATCH)):
                found = how.decode(generator.model, tokens.take(batch), keys[batch], longest)
                written = [tidy(generator.tokenizer.decode(found.queries.row(i))) for i in range(len(found.queries))]
                frame = pd.DataFrame({"passage_id": texts.index[batch[found.passages]], "query": written})
                frames.append(frame.assign(log_likelihood=found.log_likelihoods, tokens=found.queries.lengths))
            written = pd.concat(frames, ignore_index=True)  # the likeliest of each passage first
            return written[written["query"] != ""].drop_duplicates(["passage_id", "query"])

        parts.append(table("generated", WRITTEN, {**settings, "from": start}, make))
    columns = ["passage_id", "log_likelihood", "query"]
    return pd.concat(parts).sort_values(columns, ascending=[True, False, True], kind="stable", ignore_index=True)


def tidy(query: str) -> str:
    """A query without the spaces that tokens leave about apostrophes and hyphens."""
    query = re.sub(r"(\w) (['’]) (s|t|d|m|re|ve|ll)\b", r"\1\2\3", query)
    return re.sub(r"(?<=\w) ([-–/]) (?=\w)", r"\1", query).strip()


def _digest(frame: pd.DataFrame) -> str:
    return cache.key(pd.util.hash_pandas_object(frame, index=False).tolist())


@dataclass(frozen=True)
class Generated(CollectionQueries):
    """Queries that a generator wrote, each with the passage that it was written for.

    The passages are by default the documents of the collection that the system is trained for, of which no label is
    seen; `share` is of them, by a hash of their ids. Decoding is by default the generator's own.
    """

    generator: QueryGenerator
    passages: Collection | OutOfTarget | None = None
    share: float = 1.0
    how: Decoding | None = None

    def __repr__(self) -> str:
        name = "generated" if self.passages is None else "generated out of target"
        return name if self.share == 1 else f"{name}, {self.share:g}"

    @property
    def settings(self) -> dict[str, Any]:
        return {"data": repr(self), **self.generator.settings, **(self.how or self.generator.decoding).settings}

    def seeded(self, seed: int) -> Self:
        return replace(self, generator=self.generator.seeded(seed))

    def finish(self, student: Any) -> None:
        """The cost of the generator does not include that of the embeddings that it begins with."""
        generator = self.generator.fit()
        student.history.upstream_costs[generator.name] = generator.history.seconds

    def collection(self, target: Collection) -> Collection:
        return _collection(replace(self, passages=self.passages or target))


@lru_cache(maxsize=16)  # asked for with every system and seed
def _collection(data: Generated) -> Collection:
    documents = data.passages.documents
    # Of a share, too, all queries are written: they are the same, and another share finds them.
    written = data.generator.queries(documents, data.how)
    if data.share < 1:
        documents = passages.sample(documents, max(2, round(data.share * len(documents))))
        written = written[written["passage_id"].isin(documents.index)]
    return synthetic("generated", written, documents)


def synthetic(name: str, generated: pd.DataFrame, documents: pd.DataFrame, test: float = 0.0) -> Collection:
    """Return passages and the queries that were generated from them, as a collection to train on.

    `generated` is as `generate` returns it. The queries of a share `test` of the asked passages are test, of one at
    least if any. Of the others, those of a tenth of the passages, of 200 at most, are dev. A query's `cluster` is its
    passage. Raises `DataError` for an unknown passage, or for queries of fewer than two of which some train.
    """
    passage = generated["passage_id"].reset_index(drop=True)
    sources = sorted(passage.unique(), key=hash_position)
    wrong = f"{name!r}: queries of {len(sources)} passages; some train, others validate"
    require(len(sources) > (0 if test else 1), wrong, DataError)
    tested = sources[len(sources) - max(bool(test), round(test * len(sources))) :]
    held_out = sources[: max(1, min(MOST_HELD_OUT, round(HELD_OUT * len(sources))))]
    split = np.select([passage.isin(tested), passage.isin(held_out)], ["test", "dev"], "train")
    ids = passage + "?" + passage.groupby(passage, sort=False).cumcount().astype(str)
    columns = {"text": generated["query"].to_numpy(), "cluster": passage.to_numpy(), "split": split}
    queries = pd.DataFrame(columns, index=ids.to_numpy()).rename_axis("query_id")
    qrels = pd.DataFrame({"query_id": queries.index, "doc_id": queries["cluster"].array, "relevance": 1})
    qrels = with_copies(qrels, documents) if test else qrels  # where they judge
    documents = documents[[column for column in ("text", "title") if column in documents]].rename_axis("doc_id")
    return Collection(name, documents, queries, qrels)
