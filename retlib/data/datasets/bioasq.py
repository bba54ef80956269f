"""BioASQ task B: questions of biomedical experts, and PubMed documents by their snippets (Tsatsaronis 2015)."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pandas as pd

from retlib.data.collection import Collection
from retlib.data.datasets import register
from retlib.data.datasets._files import Entries, listed
from retlib.data.datasets.catalogue import catalogue, provenance
from retlib.data.splits import HELD_OUT, hash_position

# The challenge whose 500 questions Liang 2020 tests on.
TEST = "7B"


@register("bioasq")
def load_bioasq() -> Collection:
    """The golden files of the challenges 7B to 12B; candidates are the documents that they quote.

    A part of the paper's task: no abstract is in these files, so a document is its snippets, which the experts took
    because they answer a question. Candidates are the 18,687 documents that some question quotes, not the 20 million of
    PubMed: the task is much easier than the paper's.

    `title` is the title where a snippet quotes it, else empty; `text` is the snippets of the abstract in their order,
    those inside another left out (the title where nothing else is quoted). The 500 questions of 7B are test, as in the
    paper; of the later ones, which stand in for the training set, a tenth is dev. A question that is asked twice is
    one, on the most guarded side. Relevant is what a question lists or quotes.
    """
    files = [file.name for file in catalogue()["bioasq"].files]
    # Test first, so that the first of several questions of equal text is the most guarded.
    files.sort(key=lambda name: (not Path(name).name.startswith(TEST), name))
    queries, judged, snippets = {}, {}, defaultdict(list)
    for file in files:
        for query_id, text, documents, quoted in _questions(file):
            query_id = queries.setdefault(text, (query_id, _split(file, text)))[0]
            for document, *snippet in quoted:
                snippets[document].append(snippet)
            judged.update(dict.fromkeys((query_id, document) for document in documents))
    documents = pd.DataFrame.from_dict(
        {document: _document(parts) for document, parts in snippets.items()}, orient="index", columns=["text", "title"]
    )
    asking = [(query_id, text, split) for text, (query_id, split) in queries.items()]
    qrels = [pair for pair in judged if pair[1] in snippets]
    return Collection(
        "bioasq",
        documents.rename_axis("doc_id"),
        pd.DataFrame(asking, columns=["query_id", "text", "split"]).set_index("query_id"),
        pd.DataFrame(qrels, columns=["query_id", "doc_id"]).assign(relevance=1),
        provenance=provenance("bioasq"),
    )


def _split(file: str, text: str) -> str:
    if Path(file).name.startswith(TEST):
        return "test"
    return "dev" if hash_position(text) < HELD_OUT else "train"


def _questions(file: str) -> Entries:
    """Id, text, relevant documents and snippets (document, section, start, text) of every question."""

    def question(entry: dict) -> tuple[str, str, list[str], list[tuple]]:
        quoted = [_snippet(snippet) for snippet in entry["snippets"]]
        documents = [_number(address) for address in entry["documents"]] + [row[0] for row in quoted]
        return entry["id"], " ".join(entry["body"].split()), documents, quoted

    entries = listed("bioasq", file, lambda content: content["questions"], "`questions`", "question")
    return entries.parsed(question, "`id`, `body`, `documents` and `snippets`")


def _snippet(entry: dict) -> tuple[str, str, int, str]:
    section, start = entry["beginSection"], int(entry["offsetInBeginSection"])
    return _number(entry["document"]), section, start, " ".join(entry["text"].split())


def _number(address: str) -> str:
    """The PubMed number at the end of an address."""
    number = address.rstrip("/").rpartition("/")[2]
    if not number.isdigit():
        raise ValueError(f"{address!r} is no address of PubMed")
    return number


def _document(snippets: list[tuple[str, int, str]]) -> tuple[str, str]:
    """Text and title of a document, of the snippets (section, start, text) that are quoted from it."""
    title = max((text for section, _, text in snippets if section == "title"), key=len, default="")
    kept: list[str] = []
    for text in sorted({text for section, _, text in snippets if section != "title"}, key=lambda t: (-len(t), t)):
        if not any(text in longer for longer in kept):
            kept.append(text)
    # Annotators who mark the same words may give other offsets: the first counts.
    starts = {text: start for _, start, text in sorted(snippets, reverse=True)}
    return " ".join(sorted(kept, key=lambda text: (starts[text], text))) or title, title
