"""The released data sets: questions that ask the same (Part I), questions with what answers, Wikipedia (all parts)."""

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import groupby, pairwise
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

import pandas as pd

from retlib.core.errors import DataError
from retlib.data import collection
from retlib.data.collection import Article, Collection
from retlib.data.datasets import own, register, register_articles, register_text
from retlib.data.datasets.catalogue import catalogue, locate, read_archive, read_table, reading
from retlib.data.text import is_running_text, quick_sentences, running_text, words

SIDES = ["left", "right"]
# What annotators left where no disfluent version was written, as words.
PLACEHOLDERS = {"", "value", "n a", "no question", "no question n a", "question n a", "answer n a"}
SMALL = 20_000  # candidates that a dense run on a laptop can bear
TEST = "bioasq/7B"  # how the files begin whose 500 questions Liang 2020 tests on
# A run of others on TREC DL 2019: the first hundred that BM25 finds for a query among all passages of MS MARCO.
RUN, PASSAGES = "trec-dl-2019/run.bm25.trec", 8_841_823


def by_text(pairs: pd.DataFrame) -> tuple[pd.Series, pd.DataFrame]:
    """Return the distinct texts by their `text_id`, and the pairs (left, right, label) with ids for texts.

    Left out are repeated pairs, pairs of a text with itself, and pairs with an empty side.
    """
    pairs = pairs.assign(**{side: pairs[side].str.strip() for side in SIDES})
    pairs = pairs[(pairs[SIDES] != "").all(axis=1)]
    ids = {text: collection.text_id(text) for text in pd.unique(pairs[SIDES].to_numpy(dtype=object).ravel())}
    pairs = pairs.assign(**{side: pairs[side].map(ids) for side in SIDES})
    pairs = pairs[pairs["left"] != pairs["right"]].drop_duplicates([*SIDES, "label"])
    return pd.Series({item: text for text, item in ids.items()}, dtype=object), pairs.reset_index(drop=True)


def similar_items(
    name: str, pairs: pd.DataFrame, labels: Mapping[str, int], shares: Mapping[str, float], test: Iterable[str] = ()
) -> Collection:
    """Return the retrieval task of labelled pairs, split by `split_by_cluster`; the texts in `test` are test."""
    texts, pairs = by_text(pairs.assign(label=pairs["label"].map(labels).astype(int)))
    split = collection.split_by_cluster(texts.index, collection.closure(pairs), shares)
    split[texts.isin(set(test))] = "test"
    return collection.retrieval_task(name, texts, pairs, split)


@register("quora")
def load_quora() -> Collection:
    """Return the official TSV; 'candidates("test")' gives the paper's smaller candidate set.

    Its partition is not published: a tenth of the clusters gives about as many test queries on a fifth of the pairs.
    """
    rows = read_table("quora/quora_duplicate_questions.tsv", "\t")
    pairs = rows[["question1", "question2", "is_duplicate"]].set_axis([*SIDES, "label"], axis=1)
    return similar_items("quora", pairs, {"0": 0, "1": 1}, {"test": 0.118, "dev": 0.05})


@register("askubuntu-titles")
def load_askubuntu_titles() -> Collection:
    """Return the two official files (Rodrigues 2017; Bogdanova 2015 by sizes); a tenth of the other clusters tunes.

    2,324 titles of the test file stand in the training file too: training pairs that touch one are dropped.
    """
    files = [f"askubuntu-titles/{part}_titles.tsv" for part in ("test", "train")]
    test, train = (read_table(file, "\t", ["label", *SIDES]).apply(lambda each: each.str.strip()) for file in files)
    held_out = {*test["left"], *test["right"]}
    pairs = pd.concat([test, train[~train[SIDES].isin(held_out).any(axis=1)]])
    return similar_items("askubuntu-titles", pairs, {"duplicate": 1, "non-duplicate": 0}, {"dev": 0.10}, held_out)


@register("disfl-qa")
def load_disfl_qa() -> Collection:
    """Return SQuAD's questions and disfluent versions of them (Gupta 2021) with the official splits.

    A cluster of several files goes to test before dev before train. Pairs without a real disfluent version (50 say
    ``#VALUE!`` or the like) are left out.
    """
    rows = [
        (entry["original"], entry["disfluent"], 1, part)
        for part in ("test", "dev", "train")  # so that the first part of a cluster's pairs is its side
        for entry in json.loads(locate(f"disfl-qa/{part}.json").read_bytes()).values()
        if " ".join(words(entry["disfluent"])) not in PLACEHOLDERS
    ]
    texts, pairs = by_text(pd.DataFrame(rows, columns=[*SIDES, "label", "part"]))
    clusters = collection.closure(pairs)
    split = clusters.map(pairs.groupby(pairs["left"].map(clusters), sort=False)["part"].first())
    return collection.retrieval_task("disfl-qa", texts[split.index], pairs, split)


# --- those with what answers ----------------------------------------------------------------------


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
        passage_id = collection.text_id(passage.text)
        documents.setdefault(passage_id, (passage.text, passage.title, passage.article))
        rows += [(collection.text_id(question), question, passage_id) for question, *_ in passage.questions]
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
        passage_id = collection.text_id(passage.text)
        spans = first.setdefault(passage_id, passage).spans
        for question, start, answer in passage.questions:
            ends = start + len(answer)
            holding = [place for place, (left, right) in enumerate(spans) if left <= start and ends <= right]
            if holding:
                facts = f"{passage_id}#{holding[0]}", first[passage_id].article, passage.text.count(answer) > 1
                rows.append((collection.text_id(question), question, *facts))
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


def answer_retrieval(name: str, documents: pd.DataFrame, judged: pd.DataFrame) -> Collection:
    """Return the collection of judged questions: `query_id`, `text`, and `cluster`, the document that answers.

    `position`, a hash of the text unless one is given, decides the split: 72 % train, 8 % dev, 20 % test.
    """
    judged = judged.drop_duplicates(["query_id", "cluster"])
    queries = judged.drop_duplicates("query_id").set_index("query_id")
    position = queries.get("position", queries["text"].map(collection.hash_position)).astype(float)
    split = collection.split_by_position(position, collection.SHARE, collection.SHARE)
    qrels = judged[["query_id", "cluster"]].set_axis(["query_id", "doc_id"], axis=1).assign(relevance=1)
    queries = queries.assign(position=position, split=split)
    return Collection(name, documents, queries, qrels.reset_index(drop=True))


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
    sizes = sizes[sorted(sizes.index, key=collection.hash_position)]
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
    queries, judged, snippets = {}, {}, defaultdict(list)
    files = (file.name for file in catalogue()["bioasq"].files)
    for file in sorted(files, key=lambda name: (not name.startswith(TEST), name)):
        for question in json.loads(locate(file).read_bytes())["questions"]:
            text = " ".join(question["body"].split())
            split = "dev" if collection.hash_position(text) < collection.HELD_OUT else "train"
            row = question["id"], text, "test" if file.startswith(TEST) else split
            query_id = queries.setdefault(text, row)[0]
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
    documents = read_table("trec-dl-2019/collection.tsv", "\t", ["doc_id", "text"]).set_index("doc_id")
    queries = read_table("trec-dl-2019/queries.tsv", "\t", ["query_id", "text"]).set_index("query_id")
    qrels = read_table("trec-dl-2019/qrels.txt", r"\s+", ["query_id", "Q0", "doc_id", "relevance"])
    qrels = qrels.drop(columns="Q0").astype({"relevance": int})
    queries = queries[queries.index.isin(qrels["query_id"])].assign(split="test")
    qrels = qrels[qrels["query_id"].isin(queries.index) & qrels["doc_id"].isin(documents.index)]
    return Collection("trec-dl-2019", documents.assign(title=""), queries, qrels.reset_index(drop=True))


@reading("trec-dl-2019")
def trec_run() -> pd.DataFrame:
    """Return the public run of BM25 in its order: query_id, doc_id, score."""
    rows = read_table(RUN, r"\s+", ["query_id", "Q0", "doc_id", "rank", "score", "tag"])
    return rows[["query_id", "doc_id", "score"]].astype({"score": float})


# --- Wikipedia: its selection for schools of 2007 with hyperlinks (West 2009), and of 2015 --------------

TEXTS = "wikispeedia/wikispeedia_articles_plaintext.tar.gz"
GRAPH = "wikispeedia/wikispeedia_paths-and-graph.tar.gz"
WIDTH = 74  # columns at which the text is wrapped
ENLARGE = "Enlarge"  # what the link reads that enlarges a picture; its caption stands above and below
SELECTION, LICENCE = "2007 Schools Wikipedia Selection", "\n   Retrieved from"


@register_text("wikispeedia")
def wikispeedia_sentences() -> Iterator[str]:
    """Yield every sentence of the running text, captions included, without the paragraph on source and licence."""
    for _, text in read_archive(TEXTS):
        paragraphs = re.split(r"\n\s*\n", text.rsplit(LICENCE, 1)[0])
        yield from running_text(" ".join(paragraph.split()) for paragraph in paragraphs)


@register_articles("wikispeedia")
def wikispeedia_articles() -> Iterator[Article]:
    """Yield every article: its paragraphs of running text, and what it links to.

    Left out is whatever is not indented by three spaces (infoboxes, tables, lists, quotations), captions and footnotes.
    """
    links = defaultdict(list)
    graph = {Path(file).name: text for file, text in read_archive(GRAPH)}
    for line in graph["links.tsv"].splitlines():
        if line and not line.startswith("#"):
            source, target = map(unquote, line.split("\t"))
            links[source].append(target)
    for file, text in read_archive(TEXTS):
        titles, sections = [], [[]]  # what stands at the margin, the article's title first, and what between
        text = "\n".join(map(str.rstrip, text.split("\n")))
        for block in re.findall(r"[^\n]+(?:\n[^\n]+)*", text.split(LICENCE)[0]):
            if block.startswith(" "):
                sections[-1].extend(paragraphs(block.split("\n")))
            elif not block.startswith(SELECTION):
                titles.append(block.replace("\n", " "))
                sections.append([])
        name = unquote(Path(file).name.removesuffix(".txt"))
        yield Article.of(name, titles[0], sections, links[name])


def paragraphs(block: list[str]) -> list[str]:
    """Return the paragraphs of running text in a block of lines of `wikispeedia`, without captions."""
    if any(line[:3].strip() or line[3:4] == " " for line in block):
        return []  # an infobox, a table or a list
    lines = [line.strip() for line in block]
    joined = lines[:1]
    for above, below in pairwise(lines):
        # Two lines were one where the next one's first word had no place at the end of the one above.
        has_place = 3 + len(above) + 1 + len(below.split(" ", 1)[0]) <= WIDTH
        if has_place or ENLARGE in (above, below):
            joined.append(below)
        else:
            joined[-1] += f" {below}"
    captions = {i + step for i, line in enumerate(joined) if line == ENLARGE for step in (-1, 1)}
    # A picture's caption that cannot be enlarged also stands twice.
    captions |= {i + step for i, (one, other) in enumerate(pairwise(joined)) if one == other for step in (0, 1)}
    # Footnotes and the titles of tables begin so.
    rest = (line for i, line in enumerate(joined) if i not in captions and not line.startswith(("^", "CAPTION:")))
    return list(filter(is_running_text, rest))


@register_articles("wikipedia-2015")
def wikipedia_articles() -> Iterator[Article]:
    """Yield every article, as WikiExtractor wrote it: its paragraphs of running text, the name its title, no links.

    A line that is no running text (a heading, or what introduces a list) ends a section, and the first the opening.
    """
    for _, text in read_archive("wikipedia-2015/wikiextractor-AA.tar.gz"):
        _, *parts = re.split(r'(?m)^<doc id="\d+" url="[^"]*" title="(.*)">$', text)
        for title, body in zip(parts[::2], parts[1::2], strict=True):
            # The first line repeats the title, the last closes the article.
            lines = [line for line in map(str.strip, body.split("\n")) if line][1:-1]
            groups = groupby(lines, key=is_running_text)
            yield Article.of(title, title, [list(group) for is_text, group in groups if is_text])
