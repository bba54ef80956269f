"""Golden loss curves: ten steps of each kind of training of a retriever or generator are what they were.

Who changes what is trained raises `VERSION` in ``retlib/systems/system.py`` or ``query_generation.py``, so that nothing
trained before is taken for what would be trained now, and writes the curves anew::

    PYTHONPATH=tests python tests/systems/test_golden.py

A new loss, sampler, optimizer or head of a generator needs its curve there as well.
"""

import json
import os
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import generators
import numpy as np
import pytest
import torch
from conftest import make_toy
from generators import make_pairs
from words import UNITS, WORDS, make_collection

from retlib.core import runtime
from retlib.data.articles import Corpus
from retlib.data.collection import Article
from retlib.data.text import Vocabulary, WordPiece
from retlib.models.generator import HEADS, Generator
from retlib.models.retriever import Architecture
from retlib.studies.part1 import Neighbours, bag_of_words, pair_stage
from retlib.systems.query_generation import train_generator
from retlib.systems.system import Stage, System, fit
from retlib.systems.training_data import LabelledPairs, Labels, MaskedTokens, Pretraining
from retlib.training.losses import LOSSES
from retlib.training.negatives import NEGATIVES
from retlib.training.trainer import OPTIMIZERS, Schedule

CURVES = Path(__file__).with_name("golden.json")
CLOSE = 1e-4
# Processors add in another order. Where weights begin at zero, Adam's first steps have the sign of gradients as small
# as that difference: this curve differs by up to 6e-4 between sets of instructions, the others by up to 9e-5.
FROM_ZERO = {"layers on embeddings"}
# A curve has the loss of every step. In float32, which every processor has.
HOW = {"steps": 10, "evaluations": 10, "batch_size": 8, "learning_rate": 0.003, "precision": "float32"}


def sentences(seed=0, count=60):
    """Three or four words that stand near each other, drawn."""
    rng = np.random.default_rng(seed)
    starts, lengths = rng.integers(0, 48, count), rng.integers(3, 5, count)
    return [
        " ".join(WORDS[(start + step * 5) % 48] for step in range(length))
        for start, length in zip(starts, lengths, strict=True)
    ]


def pages():
    """Ten articles of three passages of two sentences, each linked to the next two."""
    found = sentences()
    passages = [". ".join(found[i : i + 2]) for i in range(0, 60, 2)]
    for page in range(10):
        links = tuple(f"page {(page + step) % 10}" for step in (1, 2))
        yield Article(f"page {page}", WORDS[page], tuple(passages[3 * page : 3 * page + 3]), 1, links)


@dataclass(frozen=True, eq=False)
class Made:
    """Articles, or a text, made for these tests."""

    tokenizer: WordPiece | Vocabulary
    corpus: Corpus | None = None
    fingerprint: str = "made for the golden test"

    def __iter__(self):
        return iter(sentences())


ARTICLES = Made(UNITS, Corpus.build(pages(), UNITS.encode, lambda text: text.split(". ")))
TEXT = Made(Vocabulary.build(sentences()))
TOY, OTHER, QUERIES = make_toy("toy", slice(0, 12)), make_toy("other", slice(12, None)), make_collection()
BESIDE = zip(sentences(1, 40), sentences(2, 40), strict=True)
WRITTEN = QUERIES.documents.assign(text=[f"{one.capitalize()}. {two.capitalize()}." for one, two in BESIDE])
PASSAGES = replace(QUERIES, name="passages", documents=WRITTEN)

SMALL = Architecture(layers=1, width=64, dimension=16, query_length=8, document_length=16)
TRANSFORMER = System(SMALL, ARTICLES)
UNTRAINED = System(replace(SMALL, encoder="bow-mlp"), ARTICLES)
WARM = UNTRAINED + Stage(data=Labels(), keep="last", **HOW)
BAGS = System(bag_of_words(16))
LABELLED = {"batch_size": 12, "evaluations": 10, "steps": 10, "patience": None, "precision": "float32"}


def labels(**changes):
    """A stage on the labels of a collection, with a few negatives of every query's own where nothing else is said."""
    given = {"negatives": "random", "options": {"n": 3}} if "negatives" not in changes else {}
    return Stage(**{"data": Labels(), **given, **HOW, **changes})


def of_negatives(name):
    """Any negatives with a loss that fits."""
    if name == "labelled":
        return BAGS + pair_stage(negatives=name, loss="cross_entropy", **LABELLED)
    trains = "query" if NEGATIVES.get(name).fixed_documents else "both"
    return WARM + labels(negatives=name, loss="ranknet", trains=trains)


def kinds():
    """Name to the system that is trained, and the collection that it is trained for."""
    yield "pretraining", TRANSFORMER + Stage(data=Pretraining(("ict", "bfs", "wlp"), ARTICLES), **HOW), QUERIES
    yield "pretraining on the passages", UNTRAINED + Stage(data=Pretraining(("ict",)), **HOW), PASSAGES
    yield "pretraining of a bow-mlp", UNTRAINED + Stage(data=Pretraining(("ict",), ARTICLES), **HOW), QUERIES
    two = System(replace(SMALL, towers="two"), ARTICLES)
    masked = two + Stage(data=MaskedTokens(ARTICLES), **{**HOW, "keep": "last"})  # whose best are near ties
    yield "masked tokens", masked, QUERIES
    yield "masked tokens, then labels", masked + Stage(data=Labels(), **HOW), QUERIES
    bag = System(replace(SMALL, layers=0), ARTICLES) + Stage(data=Pretraining(("ict", "bfs", "wlp"), ARTICLES), **HOW)
    yield "pretraining of embeddings", bag, QUERIES
    yield "layers on embeddings", bag + Stage(data=Labels(), layers=2, **HOW), QUERIES
    yield "tokens left out", bag + Stage(data=Labels(), token_dropout=0.3, **HOW), QUERIES
    yield "labels", TRANSFORMER + Stage(data=Labels(), **HOW), QUERIES
    yield "few labels", UNTRAINED + Stage(data=Labels(share=0.2), **HOW), QUERIES
    yield "in chunks", UNTRAINED + Stage(data=Labels(), chunk=3, **HOW), QUERIES
    yield "corrected", UNTRAINED + Stage(data=Labels(), options={"corrected": True}, **HOW), QUERIES
    for name in NEGATIVES.names():
        yield f"negatives {name}", of_negatives(name), TOY if name == "labelled" else QUERIES
    for name in LOSSES.names():
        # The shift has no gradient but noise under softmax, which Adam makes as large as any: it begins anew at 0.
        yield f"loss {name}", WARM + labels(loss=name, scale=1.0), QUERIES
    for name in OPTIMIZERS:
        yield f"optimizer {name}", BAGS + pair_stage(**LABELLED, optimizer=name), TOY
    trains = labels(negatives="retrieved", options={"n": 10}, loss="lambdarank-mrr", trains="query")
    yield "LTRe", WARM + trains, QUERIES
    yield "LTRe over a compressed index", WARM + replace(trains, index="PQ4x4"), QUERIES
    for name in ("cross_entropy", "softmax", "triplet"):  # and with negatives "labelled" above
        yield f"labelled pairs, in-batch {name}", BAGS + pair_stage(loss=name, **LABELLED), TOY
    several = pair_stage(data=[LabelledPairs(TOY), LabelledPairs(OTHER)], **LABELLED)
    yield "several tasks", BAGS + several, TOY
    yield "a new scale", BAGS + several + pair_stage(data=LabelledPairs(TOY), **{**LABELLED, "scale": 5.0}), TOY
    gru = System(replace(SMALL, encoder="skip-thought"), TEXT)
    yield "neighbouring sentences", gru + Stage(data=Neighbours(TEXT), **HOW), TOY


KINDS = {name: (system, collection) for name, system, collection in kinds()}
KINDS |= {f"generator {head}": head for head in sorted(HEADS)}


def curve(name):
    """The loss of each step."""
    if isinstance(KINDS[name], str):
        start = Generator.fresh(replace(generators.SMALL, head=KINDS[name]), generators.LETTERS, seed=0)
        schedule = Schedule(**{**HOW, "batch_size": 4, "learning_rate": 1e-3})
        trained = train_generator(start, make_pairs(), schedule, seed=0)
    else:
        trained = fit(*KINDS[name], 0)
    return [row["loss"] for row in trained.history.evaluations[1:]]


@pytest.fixture(autouse=True)
def _exact(exact):
    """Encodings, too, are in float32."""


@pytest.mark.parametrize("name", KINDS)
def test_ten_steps_are_what_they_were(name):
    known = json.loads(CURVES.read_text())
    again = "write the curves anew: PYTHONPATH=tests python tests/systems/test_golden.py"
    assert name in known, f"{name!r} has no golden curve yet; {again}"
    assert curve(name) == pytest.approx(known[name], abs=CLOSE * (10 if name in FROM_ZERO else 1)), (
        f"ten steps of {name!r} are no longer what they were. If that is meant, raise VERSION, so that what is trained "
        f"already is trained again, and {again}"
    )


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
@pytest.mark.parametrize("name", KINDS)
def test_a_gpu_takes_the_same_steps(name, monkeypatch):
    monkeypatch.setenv("RETLIB_DEVICE", "cuda")
    assert curve(name) == pytest.approx(json.loads(CURVES.read_text())[name], abs=10 * CLOSE)


def main() -> None:
    """Write the curves."""
    runtime.has_bfloat16 = lambda: False
    with tempfile.TemporaryDirectory() as folder:
        os.environ["RETLIB_BUILD"] = folder
        found = {name: [round(loss, 6) for loss in curve(name)] for name in KINDS}
    lines = (f" {json.dumps(name)}: {json.dumps(losses)}" for name, losses in found.items())
    CURVES.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
