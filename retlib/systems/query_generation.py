"""The query generator: trained on labelled pairs, it writes queries for passages (Liang 2020, section 2.1).

As in `retlib.systems.dense`, what was trained and what was generated are kept as artefacts. The measures of
generated queries are in `retlib.evaluation.query_measures`.
"""

from __future__ import annotations

import copy
import hashlib
import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np
import pandas as pd
from safetensors.torch import load_file, save_file
from torch import Tensor

from retlib.core import cache, runtime
from retlib.core.errors import DataError, require, require_one_of, require_positive
from retlib.data import pairs, text
from retlib.data.collection import Collection, hash_position
from retlib.data.pairs import Pairs, PairSource
from retlib.data.text import TokenTable, WordPiece, concatenate
from retlib.models import decoding, seq2seq
from retlib.models.decoding import Decoding, passage_keys
from retlib.models.seq2seq import HEADS, BartTokenizer, Seq2Seq
from retlib.systems import dense
from retlib.systems.dense import Schedule
from retlib.training import denoising, optimizers, pretraining, trainer
from retlib.training.denoising import NoisedPassages
from retlib.training.pretraining import Corpus
from retlib.training.trainer import History, Task, train

# Whose source takes part in the address of what is made here.
MODULES = (
    decoding, denoising, dense, optimizers, pairs, pretraining, seq2seq, text, trainer, sys.modules[__name__],
)  # fmt: skip

CONFIG = "bart.json"
# Share of the articles whose pairs choose the weights.
HELD_OUT = 0.1
# Held-out pairs that are looked at.
VALIDATION = 512
# Passages longer than so many units are cut when they are denoised: every unit of them is to be written.
DENOISED = 64
# Passages in a batch, and in a part of the output: what a kill can cost.
BATCH, PART = 32, 512


@dataclass(frozen=True)
class Architecture:
    """What a generator is made of.

    Parameters
    ----------
    head : {"pointer", "bart"}
        See `retlib.models.seq2seq`.
    layers : int
        Of the encoder, and of the decoder.
    width : int
        Of their hidden states.
    passage_length, query_length : int
        Units beyond these are cut off; no longer query is written. Not stated in the paper.
    checkpoint : str
        A folder or hub name of a pre-trained BART, to start from; `layers` and `width` are then its own,
        and so are its units. The paper's is BART-large.
    """

    head: str = "pointer"
    layers: int = 2
    width: int = 192
    passage_length: int = 128
    query_length: int = 32
    checkpoint: str = ""

    def __post_init__(self) -> None:
        require_one_of("head", self.head, HEADS)
        require_positive(self, "layers", "width", "passage_length", "query_length")

    def build(self, units: WordPiece | BartTokenizer, config: Path | None = None) -> Seq2Seq:
        """The model, what is new of its weights drawn from torch's generator.

        `config` is a file that describes a BART whose weights are not wanted.
        """
        kind = HEADS[self.head]
        if config:
            model = kind.from_config(config, units)
        elif self.checkpoint:
            model = kind.from_checkpoint(self.checkpoint, units)
        else:
            longest = max(self.passage_length, self.query_length)
            model = kind.from_scratch(units, self.layers, self.width, longest)
        wanted = max(self.passage_length, self.query_length)
        require(wanted <= model.longest, f"texts of {wanted} units are asked for; the model takes {model.longest}")
        return model


@dataclass(eq=False)
class Generator:
    """A model that writes queries, with what it takes to use it.

    Parameters
    ----------
    architecture : Architecture
    units : WordPiece or BartTokenizer
    model : Seq2Seq
    history : History
        Its scores are held-out log-likelihoods, the mean of a unit.
    name : str
        The address of the artefact; "" of one that is not trained.
    """

    architecture: Architecture
    units: WordPiece | BartTokenizer
    model: Seq2Seq
    history: History = field(default_factory=History)
    name: str = ""

    @classmethod
    def fresh(cls, architecture: Architecture, wordpiece: WordPiece | None, seed: int) -> Generator:
        """Randomly initialized, or a checkpoint as it is.

        Raises
        ------
        SettingError
            If there is neither a vocabulary nor a checkpoint, or both.
        """
        both = "a generator reads the units of a vocabulary or those of its checkpoint: give one of them"
        require((wordpiece is None) == bool(architecture.checkpoint), both)
        runtime.set_seeds(seed)
        units = BartTokenizer(architecture.checkpoint) if wordpiece is None else wordpiece
        return cls(architecture, units, architecture.build(units).to(runtime.device()).eval())

    @property
    def fingerprint(self) -> str:
        """sha256 of architecture and weights, and of the units."""
        made = replace(self.architecture, checkpoint="")  # wherever it came from
        told = [asdict(made), self.units.tokens if isinstance(self.units, WordPiece) else len(self.units)]
        digest = hashlib.sha256(json.dumps(told).encode())
        for name, weight in sorted(self._weights().items()):
            digest.update(name.encode() + weight.numpy().tobytes())
        return digest.hexdigest()

    def _weights(self) -> dict[str, Tensor]:
        """All that a checkpoint of BART holds, shared weights once."""
        bias = "bart.final_logits_bias", self.model.bart.final_logits_bias  # a buffer, learned all the same
        return {name: tensor.detach().cpu().contiguous() for name, tensor in (*self.model.named_parameters(), bias)}

    @property
    def parameters(self) -> int:
        """How many weights it has, embeddings included."""
        return sum(weight.numel() for weight in self.model.parameters())

    def passages(self, texts: pd.Series) -> TokenTable:
        """Passages as the model reads them."""
        return concatenate([self.units.encode(texts).segment], self.architecture.passage_length)

    def queries(self, texts: pd.Series) -> TokenTable:
        """Queries as the model is taught to write them."""
        return concatenate([self.units.encode(texts).segment], self.architecture.query_length)

    def save(self, folder: Path) -> None:
        """Write units, weights, architecture and history."""
        self.units.save(folder / "vocab.txt" if isinstance(self.units, WordPiece) else folder / "units")
        save_file(self._weights(), folder / "model.safetensors")
        self.model.bart.config.to_json_file(folder / CONFIG)
        meta = {"architecture": asdict(self.architecture), "history": asdict(self.history)}
        (folder / "generator.json").write_text(json.dumps(meta))

    @classmethod
    def load(cls, folder: Path) -> Generator:
        """Read what `save` wrote."""
        meta = json.loads((folder / "generator.json").read_text())
        architecture, words = Architecture(**meta["architecture"]), folder / "vocab.txt"
        units = WordPiece.load(words) if words.exists() else BartTokenizer(folder / "units")
        model = architecture.build(units, folder / CONFIG)
        model.load_state_dict(load_file(folder / "model.safetensors"), strict=False)  # shared weights are there once
        return cls(architecture, units, model.to(runtime.device()).eval(), History(**meta["history"]), folder.name)


# --- training --------------------------------------------------------------------------------------


@dataclass(eq=False)
class WritingTask(Task):
    """Write the queries of pairs, given their documents.

    Parameters
    ----------
    module : Seq2Seq
    source : PairSource
    batch_size, seed : int
    """

    module: Seq2Seq
    source: PairSource
    batch_size: int
    seed: int

    def batch(self, step: int) -> Pairs:
        """The pairs of a step."""
        return self.source.draw(step, self.batch_size, self.seed)

    def loss(self, batch: Pairs) -> Tensor:
        r""":math:`-\frac{1}{n} \sum_t \log p(w_t \mid w_{<t}, passage)` over the n units, with ends."""
        units = len(batch.queries.ids) + len(batch)
        return -self.module.log_likelihoods(batch.documents, batch.queries).sum() / units


def denoise(start: Generator, corpus: Corpus, schedule: Schedule, seed: int) -> Generator:
    """Pre-train a generator as BART was, or find it pre-trained: see `retlib.training.denoising.NoisedPassages`.

    Parameters
    ----------
    start : Generator
        Fresh; its units are those of the corpus.
    corpus : Corpus
        As `retlib.systems.dense.prepare` returns it.
    schedule : Schedule
    seed : int
        Of the noise, and of what the model drops.
    """
    _check(schedule)
    require(isinstance(start.units, WordPiece), "a checkpoint of BART is pre-trained, and has units of its own")
    settings = {"start": start.name or start.fingerprint, "corpus": corpus.fingerprint, **_how(schedule, seed)}

    def make(folder: Path) -> None:
        generator = _copy(start)
        length = min(DENOISED, start.architecture.passage_length)
        source = NoisedPassages(corpus, start.units.mask, length)
        unseen = source.draw(0, VALIDATION // 4, seed + 1_000_003)
        _train(generator, source, unseen, schedule, seed, folder, f"denoising seed {seed}")

    return Generator.load(cache.artefact("denoised", settings, MODULES, make))


def labelled_pairs(collection: Collection, column: str = "text") -> pd.DataFrame:
    """The queries of a collection's training and validation splits, each with the passages that are relevant to it.

    Parameters
    ----------
    collection : Collection
    column : str
        Of the documents: what the generator is to read.

    Returns
    -------
    DataFrame
        Columns `query`, `passage` and `split`, "train" or "dev". A passage is on one side: all pairs of
        one article, or of one document where there are no articles, are dev for a tenth of them, chosen
        by a hash; the collection's own split of the queries is not this one.
    """
    documents = collection.documents
    require_one_of("column", column, documents.columns)
    judged = pd.concat([collection.judgments(split) for split in ("train", "dev")])
    judged = judged[judged["relevance"] > 0]
    found = documents.loc[judged["doc_id"]]
    unit = found["article"] if "article" in found else found.index.to_series()
    held_out = [hash_position(str(name)) < HELD_OUT for name in unit]
    return pd.DataFrame({
        "query": collection.queries["text"][judged["query_id"]].to_numpy(),
        "passage": found[column].to_numpy(),
        "split": np.where(held_out, "dev", "train"),
    })  # fmt: skip


def fit(start: Generator, pairs: pd.DataFrame, schedule: Schedule, seed: int) -> Generator:
    """Train a generator on labelled pairs, or find it trained.

    Parameters
    ----------
    start : Generator
        Fresh, or trained before.
    pairs : DataFrame
        Columns `query`, `passage` and `split`, as `labelled_pairs` returns them.
    schedule : Schedule
        The paper's, for BART-large, is of 5 epochs with batches of 96 and a learning rate of 3e-5 (section 4).
    seed : int
        Of the order of the pairs, and of what the model drops.

    Raises
    ------
    DataError
        If a column is missing, or if no pair trains, or none is held out.

    Notes
    -----
    The weights that are kept are the best on `VALIDATION` held-out pairs, by their mean log-likelihood.
    """
    _check(schedule)
    missing = sorted({"query", "passage", "split"} - set(pairs.columns))
    require(not missing, f"pairs need the columns query, passage and split; missing: {missing}", DataError)
    for split in ("train", "dev"):
        require(bool((pairs["split"] == split).any()), f"of {len(pairs)} pairs none has split = {split!r}", DataError)
    settings = {"start": start.name or start.fingerprint, "pairs": _digest(pairs), **_how(schedule, seed)}

    def make(folder: Path) -> None:
        generator = _copy(start)
        seen, unseen = (_tokenized(generator, pairs[pairs["split"] == split]) for split in ("train", "dev"))
        unseen = unseen.take(np.sort(np.random.default_rng(0).permutation(len(unseen))[:VALIDATION]))
        _train(generator, seen, unseen, schedule, seed, folder, f"query generator seed {seed}")

    return Generator.load(cache.artefact("generator", settings, MODULES, make))


def _check(schedule: Schedule) -> None:
    whole = schedule.chunk is None and not schedule.corrected
    require(whole, "a generator is trained without chunks and without correction")


def _how(schedule: Schedule, seed: int) -> dict:
    return {"schedule": asdict(schedule), "seed": seed, "threads": runtime.threads()}


def _copy(start: Generator) -> Generator:
    """The same generator with weights of its own, and no history."""
    return Generator(start.architecture, start.units, copy.deepcopy(start.model))


def _tokenized(generator: Generator, pairs: pd.DataFrame) -> Pairs:
    # A passage stands behind each of its queries, and is tokenized once.
    places, distinct = pd.factorize(pairs["passage"])
    return Pairs(generator.queries(pairs["query"]), generator.passages(pd.Series(distinct)).take(places))


def _train(
    generator: Generator, source: PairSource, unseen: Pairs, schedule: Schedule, seed: int, folder: Path, label: str
) -> None:
    """Train in place, and save."""
    task = WritingTask(generator.model, source, schedule.batch_size, seed)
    validate = _validation(task, unseen, schedule.precision)
    generator.history = train(task, schedule.settings(), validate, seed, folder, label)
    generator.save(folder)


def _validation(task: WritingTask, unseen: Pairs, precision: str) -> Callable[[], float]:
    """The mean log-likelihood of a unit of unseen pairs, as a function of the weights."""

    def score() -> float:
        with runtime.autocast(precision):
            return -task.loss(unseen).item()

    return score


# --- generation ------------------------------------------------------------------------------------


def generate(generator: Generator, passages: pd.Series, how: Decoding, seed: int) -> pd.DataFrame:
    """Write queries for passages, or find them written.

    Parameters
    ----------
    generator : Generator
    passages : Series
        Passage id to text.
    how : Decoding
    seed : int
        Of a decoding that draws. A passage's queries depend on its id, its text and the seed, not on
        what else is in `passages`, but for the rounding of sums.

    Returns
    -------
    DataFrame
        Columns `passage_id`, `query`, `log_likelihood` (of the whole query) and `units` (that it has, its
        end not counted); sorted by passage, the likeliest query first. A query that a passage got twice is
        there once, with the higher likelihood; empty ones are left out. ``.attrs["name"]`` is the
        address of the artefact.

    Raises
    ------
    DataError
        If there is no passage, or an id is there twice.

    Notes
    -----
    Liang 2020, section 6, removes duplicate queries and names samples of one passage as their source;
    its 422,309 pairs of beam search, of at most 423,915, leave little room for those of two
    passages, so that these stay here. `retlib.evaluation.query_measures.distinct` removes them.

    Passages are taken in the order of their lengths, in parts that are written as they are done: a
    call that was killed goes on from the last one.
    """
    require(len(passages) > 0, "there is no passage to write queries for", DataError)
    repeated = passages.index[passages.index.duplicated()]
    require(len(repeated) == 0, f"passage id {repeated[:1].tolist()} is repeated", DataError)
    settings = {
        "generator": generator.name or generator.fingerprint, "passages": _digest(passages.to_frame(), index=True),
        **how.settings, "seed": seed, "threads": runtime.threads(),
    }  # fmt: skip

    def make(folder: Path) -> None:
        label = f"{how.name} queries"
        parts = list(_parts(generator, passages, how, seed, folder / "parts", label))
        written = pd.concat([pd.read_parquet(part) for part in parts])
        order = ["passage_id", "log_likelihood", "query"]
        written = written.sort_values(order, ascending=[True, False, True], kind="stable", ignore_index=True)
        written.to_parquet(folder / "queries.parquet")
        for part in parts:
            part.unlink()
        (folder / "parts").rmdir()

    folder = cache.artefact("generated", settings, MODULES, make)
    found = pd.read_parquet(folder / "queries.parquet")
    found.attrs["name"] = folder.name
    return found


def _parts(
    generator: Generator, passages: pd.Series, how: Decoding, seed: int, folder: Path, label: str
) -> Iterator[Path]:
    """The files of all parts, in order; those that are not there are made."""
    folder.mkdir(exist_ok=True)
    table = generator.passages(passages)
    order = np.argsort(table.lengths, kind="stable")
    with runtime.progress(total=len(order), desc=label, unit="passage") as bar:
        for start in range(0, len(order), PART):
            path, rows = folder / f"{start:09d}.parquet", order[start : start + PART]
            if not path.exists():
                whole = _written(generator, passages.index[rows], table.take(rows), how, seed)
                whole.to_parquet(partial := path.with_suffix(".partial"))
                os.replace(partial, path)
            bar.update(len(rows))
            yield path


def _written(generator: Generator, ids: pd.Index, table: TokenTable, how: Decoding, seed: int) -> pd.DataFrame:
    """The queries of some passages of like length."""
    keys, frames = passage_keys(ids, seed), []
    for start in range(0, len(ids), BATCH):
        rows = np.arange(start, min(start + BATCH, len(ids)))
        found = how.decode(generator.model, table.take(rows), keys[rows], generator.architecture.query_length)
        texts = [tidy(generator.units.decode(found.queries.row(i))) for i in range(len(found.queries))]
        frames.append(pd.DataFrame({
            "passage_id": ids[rows[found.passages]], "query": texts,
            "log_likelihood": found.log_likelihoods, "units": found.queries.lengths,
        }))  # fmt: skip
    written = pd.concat(frames, ignore_index=True)
    # The likeliest of a passage comes first.
    return written[written["query"] != ""].drop_duplicates(["passage_id", "query"])


_APOSTROPHE = re.compile(r"(\w) (['’]) (s|t|d|m|re|ve|ll)\b")
_HYPHEN = re.compile(r"(?<=\w) ([-–/]) (?=\w)")


def tidy(query: str) -> str:
    """A query without the spaces that units leave about apostrophes and hyphens."""
    return _HYPHEN.sub(r"\1", _APOSTROPHE.sub(r"\1\2\3", query)).strip()


def _digest(frame: pd.DataFrame, index: bool = False) -> str:
    return hashlib.sha256(pd.util.hash_pandas_object(frame, index=index).to_numpy().tobytes()).hexdigest()
