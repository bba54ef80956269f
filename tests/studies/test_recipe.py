"""Recipes: what their methods make is what is written out by hand here."""

import pytest
from part3_pages import stub

from retlib.core.errors import SettingError
from retlib.data.articles import Articles
from retlib.models import checkpoints
from retlib.models.generator import GeneratorArchitecture, Nucleus
from retlib.models.retriever import Architecture
from retlib.studies.recipe import (
    Adaptation,
    Generation,
    LabelShares,
    Leaderboard,
    Ranking,
    Recipe,
    has_layers,
)
from retlib.systems.query_generation import QueryGenerator
from retlib.systems.system import Stage, System
from retlib.systems.training_data import Labels, MaskedTokens, Pretraining
from retlib.training.trainer import Schedule

SIZES = {"layers": 1, "width": 64, "dimension": 16, "query_length": 12, "document_length": 20}
ENCODER = {"articles": "pydocs-smoke", "vocabulary": 300, **SIZES}
PRETRAINED = {"pretraining_steps": 7, "pretraining_batch": 8, "pretraining_rate": 0.02}
PAGES = Articles("pydocs-smoke", 300)
JOINT = Stage(data=Pretraining(("ict", "bfs", "wlp"), PAGES, keep=0.1), steps=7, batch_size=8, learning_rate=0.02)
SHAPE = Architecture(similarity="cosine", **SIZES)


def test_embeddings_are_pre_trained_by_all_tasks_or_by_some():
    recipe = Recipe(**ENCODER, **PRETRAINED)
    assert recipe.architecture() == SHAPE and recipe.architecture(encoder="bow-mlp", width=32).width == 32
    assert recipe.pretraining() == JOINT
    ict = Stage(data=Pretraining(("ict",), PAGES, keep=0.1), steps=9, batch_size=8, learning_rate=0.02)
    assert recipe.pretraining("ict", steps=9) == ict
    bare = Architecture(similarity="cosine", **SIZES | {"layers": 0})
    assert recipe.pretrained(layers=0) == System(bare, PAGES) + JOINT


def test_layers_are_put_on_pre_trained_embeddings():
    given = {"grown_steps": 3, "grown_batch": 4, "grown_rate": 0.1, "mlm_steps": 2, "mlm_rate": 0.3}
    recipe = LabelShares(**ENCODER, **PRETRAINED, towers="two", **given)
    assert recipe.architecture().towers == "two"
    how = {"steps": 3, "batch_size": 4, "learning_rate": 0.1}
    for tasks, layers in ((("ict", "bfs", "wlp"), 1), (("wlp",), 2)):
        by_hand = Stage(data=Pretraining(tasks, PAGES, keep=0.1), layers=layers, **how)
        assert recipe.grown(*tasks, layers=None if layers == 1 else layers) == by_hand
    assert recipe.masked() == Stage(data=MaskedTokens(PAGES), steps=2, batch_size=4, learning_rate=0.3)


# --- labels of Part II -----------------------------------------------------------------------------

LABELS = {
    "finetuning_steps": {"0.05": 2, "0.8": 3}, "finetuning_batch": 8, "finetuning_rate": 0.01,
    "layered_steps": {"0.05": 4, "0.8": {"squad": 9, "quora": 20}}, "layered_batch": 4, "layered_rate": 0.02,
}  # fmt: skip
SHARES = LabelShares(**ENCODER, **PRETRAINED, **LABELS, token_dropout=0.2)
PLAIN = System(SHARES.architecture(encoder="bow-mlp", width=32), PAGES)
BAG, DEEP = System(SHARES.architecture(layers=0), PAGES), System(SHARES.architecture(), PAGES)


@pytest.mark.parametrize(
    ("start", "steps", "batch", "rate", "dropout"),
    [
        (PLAIN, 3, 8, 0.01, 0.0),
        (BAG, 3, 8, 0.01, 0.2),
        (DEEP + JOINT, 9, 4, 0.02, 0.2),
        (BAG + Stage(data=Labels(), steps=2, layers=1), 9, 4, 0.02, 0.2),
    ],
)
def test_starts_with_layers_are_trained_on_labels_in_their_own_way(start, steps, batch, rate, dropout):
    by_hand = Stage(data=[Labels()], steps=steps, batch_size=batch, learning_rate=rate, token_dropout=dropout)
    assert SHARES.on_share(start, 0.8, "squad").settings == by_hand.settings and has_layers(start) is (batch == 4)


def test_a_collection_may_have_a_number_of_steps_of_its_own():
    assert SHARES.on_share(DEEP, 0.8, "quora").steps == 20 and SHARES.on_share(DEEP, 0.05).steps == 4
    for start, share, collection, named in ((DEEP, 0.8, "squat", "'squad'"), (PLAIN, 0.1, "", "finetuning_steps")):
        with pytest.raises(SettingError, match=named):
            SHARES.on_share(start, share, collection)


def test_embeddings_alone_may_rehearse_their_pre_training_beside_the_labels():
    rehearsing, ict, alone = SHARES.model_copy(update={"rehearsal": True}), SHARES.pretraining("ict"), (Labels(),)
    assert repr(rehearsing.on_share(BAG + JOINT + ict, 0.8).data) == repr((*alone, *ict.data))
    assert repr(SHARES.on_share(BAG + JOINT, 0.8).data) == repr(alone)
    for other in (BAG, PLAIN + JOINT, DEEP + JOINT, BAG + JOINT + SHARES.grown()):
        assert repr(rehearsing.on_share(other, 0.8, "squad").data) == repr(alone)


# --- generated queries of Part III -----------------------------------------------------------------


def test_a_generator_begins_with_the_embeddings_of_a_retriever():
    given = {"generator_epochs": 2, "generator_batch": 4, "generator_rate": 0.1, "passage_length": 16, "samples": 5}
    recipe, labels = Generation(**ENCODER, **PRETRAINED, **given, generator_layers=3, kept=1), stub("nfcorpus")
    shape = GeneratorArchitecture("pointer", layers=3, width=64, passage_length=16, query_length=12)
    schedule, nucleus = Schedule(epochs=2, batch_size=4, learning_rate=0.1), Nucleus(samples=5, keep=1)
    by_hand = QueryGenerator(shape, PAGES, schedule, nucleus, labels, System(SHAPE, PAGES) + JOINT)
    assert vars(recipe.generator(labels)) == vars(by_hand)
    assert recipe.model_copy(update={"generator_embedded": False}).generator().embeddings is None
    public = recipe.model_copy(update={"generator_head": "bart", "generator_checkpoint": "b"}).generator()
    assert public.embeddings is None and (public.architecture.head, public.architecture.checkpoint) == ("bart", "b")


def test_a_training_that_follows_is_shorter_and_labels_may_have_their_own():
    first = {"steps": 9, "batch_size": 8, "learning_rate": 0.1, "token_dropout": 0.2}
    given = {"steps": 9, "batch": 8, "rate": 0.1, "token_dropout": 0.2, "later_steps": 4}
    recipe = Adaptation(**given)
    assert recipe.first_training == recipe.label_training == first and recipe.later_training == first | {"steps": 4}
    other = Adaptation(**given, finetuning={"epochs": 2.0, "steps": 0, "learning_rate": 0.3})
    own = first | {"epochs": 2.0, "steps": 0, "learning_rate": 0.3}
    assert other.first_training == first and other.label_training == other.later_training == own


# --- rankings of Part IV ---------------------------------------------------------------------------

RANKED = {"batch": 8, "steps": 5, "rate": 0.1, "token_dropout": 0.2, "optimizer": "lamb", "retrieved": 6}
RANKED |= {"query_steps": 4, "query_rate": 0.3, "query_loss": "ranknet"}
ALL = {"data": Labels(), "batch_size": 8, "optimizer": "lamb", "token_dropout": 0.2, "keep": "last"}


def test_both_encoders_are_trained_by_ranknet_and_that_of_questions_on_its_own_lists():
    recipe = Ranking(**ENCODER, **PRETRAINED, **RANKED)
    how = {**ALL, "loss": "ranknet", "steps": 5, "learning_rate": 0.1, "negatives": "random"}
    by_hand = Stage(**how, options={"n": 2}, trains="both", layers=1)
    assert recipe.ranked("random", options={"n": 2}).settings == by_hand.settings
    assert recipe.ranked("random", layers=None).layers is None
    alone = recipe.model_copy(update={"trains": "query"})
    assert alone.ranked("random").settings == Stage(**how, trains="query").settings
    lists = {"negatives": "retrieved", "options": {"n": 6}, "trains": "query", "loss": "ranknet"}
    by_hand = Stage(**ALL, **lists, steps=4, learning_rate=0.3)
    assert recipe.ltre().settings == by_hand.settings and recipe.ltre(index="SQ8").index == "SQ8"
    assert recipe.start() == recipe.start(live=False) == recipe.pretrained(layers=0)


def test_a_public_encoder_has_been_trained_and_a_page_of_rows_does_not_look_for_it(monkeypatch):
    monkeypatch.setattr(checkpoints, "described", lambda name: {"width": 384, "dimension": 384, "checkpoint": name})
    own = Ranking(**ENCODER, **PRETRAINED, **RANKED, warm_steps=3, warm_batch=16, warm_rate=0.4)
    warm = Stage(**ALL | {"batch_size": 16}, layers=1, steps=3, learning_rate=0.4)
    assert own.warm(own.start()).settings == (own.start() + warm).settings and own.in_batch(steps=9).steps == 9
    public = own.model_copy(update={"checkpoint": "bert"})
    start = public.start()
    assert start.tokens is None and not start.stages and public.ranked("random").layers is None
    assert (start.architecture.checkpoint, start.architecture.query_length) == ("bert", 12)
    assert public.warm(start) is start
    monkeypatch.setattr(checkpoints, "described", lambda name: pytest.fail("looked for"))
    assert public.start(live=False) == System(Architecture(similarity="cosine", **SIZES | {"layers": 0}), None)


@pytest.mark.parametrize("kind", [Ranking, Leaderboard])
def test_what_reads_both_texts_learns_from_the_first_fifty_of_bm25(kind):
    recipe = kind(reader_steps=3, reader_batch=4, reader_rate=0.1, reader_negatives=5)
    how = {"steps": 3, "batch_size": 4, "learning_rate": 0.1}
    by_hand = Stage(data=Labels(), negatives="bm25", options={"n": 5, "depth": 50}, layers=2, **how)
    assert recipe.reading(layers=2).settings == by_hand.settings
