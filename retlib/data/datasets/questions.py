"""Questions and the sentence, passage or document that answers: SQuAD, Natural Questions (Parts II to IV), others."""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

import pandas as pd

from retlib.core.errors import DataError
from retlib.data.collection import Collection
from retlib.data.datasets import own, register
from retlib.data.datasets._common import SHARE, text_id
from retlib.data.datasets.catalogue import catalogue, locate, read_table, reading
from retlib.data.splits import HELD_OUT, hash_position, split_by_position
from retlib.data.text import quick_sentences

SMALL = 20_000  # candidates that a dense run on a laptop can bear
TEST = "bioasq/7B"  # how the files begin whose 500 questions Liang 2020 tests on
# A run of others on TREC DL 2019: the first hundred that BM25 finds for a query among all passages of MS MARCO.
RUN, PASSAGES = "trec-dl-2019/run.bm25.trec", 8_841_823


class Passage(NamedTuple):
    """A passage of an article: where its sentences begin and end, its questions, where their answers begin, these."""

    article: str
    title: str
    text: str
    spans: tuple[tuple[int, int], ...] = ()
    questions: tuple[tuple[str, int, str], ...] = ()


def sentence_spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield where each of `quick_sentences` begins and ends in the text, without the white space around it."""
    end = 0
    for sentence in filter(None, map(str.strip, quick_sentences(text))):
        start = text.index(sentence, end)
        end = start + len(sentence)
        yield start, end


def passage_retrieval(name: str, passages: Iterable[Passage]) -> Collection:
    """Return the collection whose candidates are passages; those of equal text, or questions of equal text, are one."""
    documents, rows = {}, []
    for passage in passages:
        passage_id = text_id(passage.text)
        documents.setdefault(passage_id, (passage.text, passage.title, passage.article))
        rows += [(text_id(question), question, passage_id) for question, *_ in passage.questions]
    frame = pd.DataFrame.from_dict(documents, orient="index", columns=["text", "title", "article"])
    return answer_retrieval(name, frame, pd.DataFrame(rows, columns=["query_id", "text", "cluster"]))


def sentence_retrieval(name: str, passages: Iterable[Passage]) -> Collection:
    """Return ReQA (Ahmad 2019; Chang 2020, section 4.1): candidates are all (sentence, passage) pairs.

    Relevant is the sentence that holds the answer. A question whose answer runs over a sentence's end or has no place,
    or whose text came before, is left out. Queries have the `article` of their answer, and `ambiguous`, whether it
    stands in the passage more than once.
    """
    first, rows = {}, []
    for passage in passages:
        passage_id = text_id(passage.text)
        spans = first.setdefault(passage_id, passage).spans
        for question, start, answer in passage.questions:
            ends = start + len(answer)
            holding = [place for place, (left, right) in enumerate(spans) if left <= start and ends <= right]
            if holding:
                facts = f"{passage_id}#{holding[0]}", first[passage_id].article, passage.text.count(answer) > 1
                rows.append((text_id(question), question, *facts))
    judged = pd.DataFrame(rows, columns=["query_id", "text", "cluster", "article", "ambiguous"])
    return answer_retrieval(name, candidates(first), judged.drop_duplicates("query_id"))


def candidates(passages: Mapping[str, Passage]) -> pd.DataFrame:
    """Return all (sentence, passage) pairs of passages by their ids: `text` is both, `sentence` and `context` each."""
    rows = [
        (f"{name}#{position}", passage.text[start:end], passage.text, name, passage.title, passage.article, position)
        for name, passage in passages.items()
        for position, (start, end) in enumerate(passage.spans)
    ]
    columns = ["doc_id", "sentence", "context", "passage", "title", "article", "position"]
    pairs = pd.DataFrame(rows, columns=columns, dtype=object).set_index("doc_id")  # many rows share one string
    pairs.insert(0, "text", pairs["sentence"] + " " + pairs["context"])
    return pairs.astype({"text": "str", "sentence": "str", "position": int})


def answer_retrieval(
    name: str, documents: pd.DataFrame, judged: pd.DataFrame, provenance: Mapping | None = None
) -> Collection:
    """Return the collection of judged questions: `query_id`, `text`, and `cluster`, the document that answers.

    `position`, a hash of the text unless one is given, decides the split: 72 % train, 8 % dev, 20 % test.
    """
    judged = judged.drop_duplicates(["query_id", "cluster"])
    queries = judged.drop_duplicates("query_id").set_index("query_id")
    position = queries.get("position", queries["text"].map(hash_position)).astype(float)
    queries = queries.assign(position=position, split=split_by_position(position, SHARE, SHARE))
    qrels = judged[["query_id", "cluster"]].set_axis(["query_id", "doc_id"], axis=1).assign(relevance=1)
    return Collection(name, documents, queries, qrels.reset_index(drop=True), provenance=provenance or {})


def squad() -> Iterator[Passage]:
    """Yield the 18,896 paragraphs of SQuAD 1.1's training file; their sentences are 90,604.

    In the copy that the catalogue knows an answer begins at its first occurrence: 10.8 % stand in their passage more
    than once, 9.4 % in more than one sentence. Of 87,599 questions no sentence answers 350.
    """
    for article in json.loads(locate("squad/train-v1.1.json").read_bytes())["data"]:
        title = unquote(article["title"]).replace("_", " ")
        for paragraph in article["paragraphs"]:
            answers = [(entry["question"].strip(), entry["answers"][0]) for entry in paragraph["qas"]]
            questions = tuple((question, answer["answer_start"], answer["text"]) for question, answer in answers)
            spans = tuple(sentence_spans(paragraph["context"]))
            yield Passage(article["title"], title, paragraph["context"], spans, questions)


def squad_small() -> Iterator[Passage]:
    """Yield the passages of whole articles of `squad`, chosen by a hash of their titles, with some 20,000 sentences."""
    passages = list(squad())
    sizes = pd.Series([len(each.spans) for each in passages]).groupby([each.article for each in passages]).sum()
    sizes = sizes[sorted(sizes.index, key=hash_position)]
    chosen = {*sizes.index[sizes.cumsum() - sizes < SMALL]}
    return (each for each in passages if each.article in chosen)


def natural_questions() -> Iterator[Passage]:
    """Yield the paragraphs and sentences of Natural Questions that QED annotates, training and development together.

    A passage without `sentence_starts` (3 %: tables and infoboxes) is one sentence. The answer is the first span of the
    first annotator. Of the 8,522 questions of the copy that the catalogue knows 20 have none and 234 have one that runs
    over the end of a sentence; 10.2 % stand in their passage more than once.
    """
    for part in ("train", "dev"):
        file = locate(f"natural-questions/qed-{part}.jsonlines")
        for entry in map(json.loads, file.read_bytes().splitlines()):
            text, title, question = (entry[f"{each}_text"] for each in ("paragraph", "title", "question"))
            spans = entry["answer_spans"] if part == "train" else [entry["original_nq_answers"][0][0]]
            start, end = spans[0] if part == "train" else (spans[0]["start"], spans[0]["end"])
            edges = pairwise([0, *entry["sentence_starts"][1:], len(text)])
            sentences = tuple((left, left + len(text[left:right].rstrip())) for left, right in edges)
            answer = text[max(start, 0) : max(end, 0)]  # -1 where QED did not find it in the paragraph
            yield Passage(title, title, text, sentences, ((question.strip(), start, answer),))


def insuranceqa() -> Iterator[Passage]:
    """Yield the answers of a quarter of version 1 (Feng 2015), lemmatised and split anew by its publisher.

    The two files share a third of their questions, so they are read as one and split anew. What they label 0 is an
    answer drawn for another question: a candidate that is judged for none.
    """
    rows = pd.concat([read_table(f"insuranceqa/{part}.csv") for part in ("validation", "test")])
    for question, answer, label in rows[["question", "answer", "label"]].itertuples(index=False):
        yield Passage("", "", answer.strip(), questions={"0": (), "1": ((question.strip(), 0, ""),)}[label])


TASKS = {
    "squad": (sentence_retrieval, squad),
    "squad-small": (sentence_retrieval, squad_small),
    "squad-passages": (passage_retrieval, squad),
    "natural-questions": (sentence_retrieval, natural_questions),
    "natural-questions-passages": (passage_retrieval, natural_questions),
    "insuranceqa": (passage_retrieval, insuranceqa),
}
for _name, (_task, _passages) in TASKS.items():
    register(_name)(lambda name=_name, task=_task, passages=_passages: task(name, passages()))


@register("bioasq")
def load_bioasq() -> Collection:
    """Return the golden files of the challenges 7B to 12B (Tsatsaronis 2015); candidates are what they quote.

    A part of the paper's task: no abstract is in these files, so a document is its snippets, which the experts took
    because they answer a question. Candidates are the 18,687 documents that some question quotes, not the 20 million of
    PubMed: the task is much easier than the paper's.

    `text` is the snippets of the abstract in their order, those inside another left out (the title where nothing else
    is quoted). The 500 questions of 7B are test, as in the paper; of the later ones, which stand in for the training
    set, a tenth is dev. Relevant is what a question lists or quotes.
    """
    # Test first, so that the first of several questions of equal text is the most guarded.
    files = sorted(file.name for file in catalogue()["bioasq"].files)
    files.sort(key=lambda name: not name.startswith(TEST))
    queries, judged, snippets = {}, {}, defaultdict(list)
    for file in files:
        for question in json.loads(locate(file).read_bytes())["questions"]:
            text = " ".join(question["body"].split())
            split = "test" if file.startswith(TEST) else "dev" if hash_position(text) < HELD_OUT else "train"
            query_id = queries.setdefault(text, (question["id"], text, split))[0]
            for quote in question["snippets"]:
                place = quote["beginSection"], int(quote["offsetInBeginSection"]), " ".join(quote["text"].split())
                snippets[Path(quote["document"]).name].append(place)  # the PubMed number at the end of its address
            addresses = [*question["documents"], *(quote["document"] for quote in question["snippets"])]
            judged |= dict.fromkeys((query_id, Path(address).name) for address in addresses)
    documents = {document: _document(parts) for document, parts in snippets.items()}
    qrels = pd.DataFrame([pair for pair in judged if pair[1] in snippets], columns=["query_id", "doc_id"])
    return Collection(
        "bioasq",
        pd.DataFrame.from_dict(documents, orient="index", columns=["text", "title"]).rename_axis("doc_id"),
        pd.DataFrame([*queries.values()], columns=["query_id", "text", "split"]).set_index("query_id"),
        qrels.assign(relevance=1),
    )


def _document(snippets: list[tuple[str, int, str]]) -> tuple[str, str]:
    # Text and title, of the snippets (section, start, text) that are quoted from a document.
    title = max((text for section, _, text in snippets if section == "title"), key=len, default="")
    texts = {text for section, _, text in snippets if section != "title"}
    texts = [text for text in texts if not any(text in other for other in texts - {text})]
    # Annotators who mark the same words may give other offsets: the first counts.
    starts = {text: start for _, start, text in sorted(snippets, reverse=True)}
    return " ".join(sorted(texts, key=lambda text: (starts[text], text))) or title, title


@register("nfcorpus")
def load_nfcorpus() -> Collection:
    """Return BEIR's release (Boteva 2016) with its own splits: questions of laymen, 3,633 medical abstracts.

    Relevance is 2 for what a page cites itself and 1 for what a page that it links to cites.
    """
    path = locate("beir/nfcorpus.zip")
    try:
        return replace(own.find(f"beir:{path}").collection(), name="nfcorpus", provenance={})
    except DataError as error:
        raise ValueError(str(error)) from error  # so that `catalogue.reading` says how to get the release


@register("trec-dl-2019")
def load_trec_dl_2019() -> Collection:
    """Return the judged queries of the passage task (Craswell 2020), all test queries, over `collection.tsv`.

    Relevance is 0 to 3; the track takes 2 and above for relevant where a measure is binary (``RR(rel=2)@10``). The copy
    that the catalogue knows is a pool: what six systems ranked in their top 100. Judged passages outside it (1,357 of
    4,102 with a grade above 0) are left out; with all of them, the nDCG@10 of BM25 is 0.1 points lower.
    """
    files = {"doc_id": "collection", "query_id": "queries"}
    texts = (read_table(f"trec-dl-2019/{file}.tsv", "\t", [key, "text"]).set_index(key) for key, file in files.items())
    (documents, queries), qrels = texts, trec_judgments()
    queries = queries[queries.index.isin(qrels["query_id"])].assign(split="test")
    qrels = qrels[qrels["query_id"].isin(queries.index) & qrels["doc_id"].isin(documents.index)]
    return Collection("trec-dl-2019", documents.assign(title=""), queries, qrels.reset_index(drop=True))


@reading("trec-dl-2019")
def trec_judgments() -> pd.DataFrame:
    """Return all official judgments, also of passages outside the pool: query_id, doc_id, relevance."""
    rows = read_table("trec-dl-2019/qrels.txt", r"\s+", ["query_id", "Q0", "doc_id", "relevance"])
    return rows.drop(columns="Q0").astype({"relevance": int})


@reading("trec-dl-2019")
def trec_run() -> pd.DataFrame:
    """Return the public run of BM25 in its order: query_id, doc_id, score."""
    rows = read_table(RUN, r"\s+", ["query_id", "Q0", "doc_id", "rank", "score", "tag"])
    return rows[["query_id", "doc_id", "score"]].astype({"score": float})
