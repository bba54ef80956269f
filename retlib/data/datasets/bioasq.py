"""BioASQ task B: questions of biomedical experts, and PubMed documents by their snippets (Tsatsaronis 2015)."""

from collections import defaultdict
from pathlib import Path

import pandas as pd

from retlib.data.collection import Collection
from retlib.data.datasets import register
from retlib.data.datasets._files import content
from retlib.data.datasets.catalogue import entry
from retlib.data.splits import HELD_OUT, hash_position

# How the files of the challenge begin whose 500 questions Liang 2020 tests on.
TEST = "bioasq/7B"


@register("bioasq")
def load_bioasq() -> Collection:
    """Return the golden files of the challenges 7B to 12B; candidates are the documents that they quote.

    A part of the paper's task: no abstract is in these files, so a document is its snippets, which the experts took
    because they answer a question. Candidates are the 18,687 documents that some question quotes, not the 20 million of
    PubMed: the task is much easier than the paper's.

    `title` is the title where a snippet quotes it, else empty; `text` is the snippets of the abstract in their order,
    those inside another left out (the title where nothing else is quoted). The 500 questions of 7B are test, as in the
    paper; of the later ones, which stand in for the training set, a tenth is dev. A question that is asked twice is
    one, on the most guarded side. Relevant is what a question lists or quotes.
    """
    files = [file.name for file in entry("bioasq").files]
    # Test first, so that the first of several questions of equal text is the most guarded.
    files.sort(key=lambda name: (not name.startswith(TEST), name))
    queries, judged, snippets = {}, {}, defaultdict(list)
    for file, question in ((name, each) for name in files for each in content("bioasq", name)["questions"]):
        text = " ".join(question["body"].split())
        split = "test" if file.startswith(TEST) else "dev" if hash_position(text) < HELD_OUT else "train"
        query_id = queries.setdefault(text, (question["id"], split))[0]
        for quote in question["snippets"]:
            place = quote["beginSection"], int(quote["offsetInBeginSection"]), " ".join(quote["text"].split())
            snippets[Path(quote["document"]).name].append(place)  # the PubMed number at the end of its address
        addresses = [*question["documents"], *(quote["document"] for quote in question["snippets"])]
        judged.update(dict.fromkeys((query_id, Path(address).name) for address in addresses))
    documents = {document: _document(parts) for document, parts in snippets.items()}
    asking = [(query_id, text, split) for text, (query_id, split) in queries.items()]
    qrels = [pair for pair in judged if pair[1] in snippets]
    return Collection(
        "bioasq",
        pd.DataFrame.from_dict(documents, orient="index", columns=["text", "title"]).rename_axis("doc_id"),
        pd.DataFrame(asking, columns=["query_id", "text", "split"]).set_index("query_id"),
        pd.DataFrame(qrels, columns=["query_id", "doc_id"]).assign(relevance=1),
    )


def _document(snippets: list[tuple[str, int, str]]) -> tuple[str, str]:
    # Text and title, of the snippets (section, start, text) that are quoted from a document.
    title = max((text for section, _, text in snippets if section == "title"), key=len, default="")
    kept: list[str] = []
    for text in sorted({text for section, _, text in snippets if section != "title"}, key=lambda t: (-len(t), t)):
        if not any(text in longer for longer in kept):
            kept.append(text)
    # Annotators who mark the same words may give other offsets: the first counts.
    starts = {text: start for _, start, text in sorted(snippets, reverse=True)}
    return " ".join(sorted(kept, key=lambda text: (starts[text], text))) or title, title
