"""Each released source in small, in its official format: source to its files, to text or an archive's files by name."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path

import pandas as pd
import pytest

from retlib.data import datasets
from retlib.data.collection import Collection
from retlib.data.datasets import catalogue, released


@pytest.fixture
def release(write):
    """Write the small release of a source, some of its files changed, and forget what was read of it before."""

    def put(source, changes=None):
        datasets._load.cache_clear()
        for name, content in (RELEASES[source] | (changes or {})).items():
            write(name, content)

    return put


def put(folder: Path, files: dict[str, str | bytes | None]) -> Path:
    """Write files below a folder by their names, but those that are None, and return the folder."""
    for name, content in files.items():
        if content is not None:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


def relevant(collection: Collection, text: str) -> dict[str, int]:
    """The texts that are judged for the query with that text, by their grades."""
    (query,) = collection.queries.index[collection.queries["text"] == text]
    judged = collection.qrels[collection.qrels["query_id"] == query]
    return dict(zip(collection.documents["text"][judged["doc_id"]], judged["relevance"], strict=True))


def lines(*rows: tuple) -> str:
    """Rows between tabs."""
    return "".join("\t".join(map(str, row)) + "\n" for row in rows)


def table(columns: str, *rows: tuple, sep: str = ",") -> str:
    """A table with quotes where they are needed."""
    return pd.DataFrame(rows, columns=columns.split()).to_csv(sep=sep, index=False)


def of_json(*entries: dict) -> str:
    return "".join(json.dumps(entry) + "\n" for entry in entries)


def zipped(files: dict[str, str | bytes], kind: int = zipfile.ZIP_STORED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", kind) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


RELEASES: dict[str, dict[str, str | bytes | dict[str, str]]] = {}

# --- similar items ---------------------------------------------------------------------------------

PAIRS = [
    ('What does "nota bene" mean?', " What is the meaning of nota bene? ", 1),
    ("What is the meaning of nota bene?", "Meaning of\nnota bene?", 1),
    ("Why is the sky blue?", "Why is grass green?", 0),
    ("Why is the sky blue?", " Why is the sky blue?", 1),  # equal without blanks: no pair
    ("Why is the sky blue?", "", 0),  # the release has three empty questions
]
ROWS = [(n, 2 * n, 2 * n + 1, *row) for n, row in enumerate(PAIRS)]
QUORA = table("id qid1 qid2 question1 question2 is_duplicate", *ROWS, sep="\t")
RELEASES["quora"] = {"quora/quora_duplicate_questions.tsv": QUORA}

TITLES = [("duplicate", f"A{n}", f"B{n}") for n in range(60)]
TITLES += [("duplicate", "T4", "X"), ("non-duplicate", "A0", "T1"), ("non-duplicate", "A0", "A1")]
TESTED = [("duplicate", "T1", "T2"), ("duplicate", "T2", "T3"), ("non-duplicate", "T1", "T4")]
FILES = {"test": lines(*TESTED), "train": lines(*TITLES)}
RELEASES["askubuntu-titles"] = {f"askubuntu-titles/{part}_titles.tsv": text for part, text in FILES.items()}

DISFLUENT = {
    "train": [("Where is it?", "Who no where is it?"), ("What now?", "When no what now?"), ("Blank 1?", "#VALUE!")],
    "dev": [("How far?", "How long no how far?"), ("Blank 2?", "Question n/a"), ("Blank 3?", " ")],
    "test": [("Where is it?", "Where was I mean where is it?"), ("Blank 4?", "Blank 4?")],
}
RELEASES["disfl-qa"] = {
    f"disfl-qa/{part}.json": json.dumps({a + b: {"original": a, "disfluent": b} for a, b in pairs})
    for part, pairs in DISFLUENT.items()
}

# --- questions about passages ----------------------------------------------------------------------

DEE = "The Dee rises in Wales. It ends in the Irish Sea. The sea is cold. "
KING = "Dr. J. Smith met the king. Then he went home."


def paragraph(context: str, *questions: tuple) -> dict:
    """A paragraph of SQuAD with questions: (text, answer) or (text, answer, start)."""
    entries = []
    for number, (text, answer, *start) in enumerate(questions):
        place = start[0] if start else context.index(answer)
        entries.append({"id": f"q{number}", "question": text, "answers": [{"text": answer, "answer_start": place}]})
    return {"context": context, "qas": entries}


def squad(**paragraphs: list[dict]) -> dict[str, str]:
    """SQuAD with articles of paragraphs."""
    data = [{"title": name, "paragraphs": each} for name, each in paragraphs.items()]
    return {"squad/train-v1.1.json": json.dumps({"version": "1.1", "data": data})}


RIVER = [(" Where does the Dee rise? ", "Wales"), ("Where does it end?", "the Irish Sea"), ("Which rises?", "Dee")]
RIVER += [("Which is cold?", "sea", DEE.rindex("sea")), ("What is over the end?", "Sea. The sea")]
MET = paragraph(KING, ("Whom did Smith meet?", "the king"), ("Which rises?", "Then"))
AGAIN = paragraph(DEE, ("What is it called?", "The"))
RELEASES["squad"] = squad(River_Dee=[paragraph(DEE, *RIVER)], A_King=[MET, AGAIN, paragraph("Nobody asks.")])

TABLE = "Wild card Name Place . The first is Oakland . The last is Denver . "
STARTS = [TABLE.index("The first"), TABLE.index("The last")]
ASKED = {"who is first": "Oakland", "who is last ": "Denver", "what is named": "Name", "who is nowhere": None}
ASKED |= {"who are both": "Oakland . The last"}
GIVEN = [[{"start": 0, "end": 4, "string": "Wild"}], [{"start": 5, "end": 9, "string": "card"}]]


def qed(text: str, question: str, answer: str | None, starts: list[int], **more: object) -> dict:
    """An entry of QED; an answer that is None was not found in the paragraph."""
    span = [text.index(answer), text.index(answer) + len(answer)] if answer else [-1, -1]
    entry = {"title_text": "Wild card", "paragraph_text": text, "question_text": question, "sentence_starts": starts}
    return {**entry, "answer_spans": [span], **more}


QED = [qed(TABLE, each, answer, STARTS) for each, answer in ASKED.items()] + [qed("One two .", "no starts", "One", [])]
WILD = qed(TABLE, "what is wild", None, STARTS, original_nq_answers=GIVEN, answer_spans="none here")
FILES = {"train": of_json(*QED), "dev": of_json(WILD)}
RELEASES["natural-questions"] = {f"natural-questions/qed-{part}.jsonlines": text for part, text in FILES.items()}

PREMIUM = [("a premium be, as they say, a price", 1), ("no", 0)]
INSURED = [("what be a premium", *each) for each in PREMIUM] + [("who pay", "x y", 0)]
OTHERS = [(" what be a premium ", "the price\nof it", 1), ("who insure", "x y", 1)]
FILES = {"validation": INSURED, "test": OTHERS}
RELEASES["insuranceqa"] = {f"insuranceqa/{part}.csv": table("question answer label", *FILES[part]) for part in FILES}


def quote(document: int, text: str, start: int = 0, section: str = "abstract") -> dict:
    address = f"http://www.ncbi.nlm.nih.gov/pubmed/{document}"
    return {"document": address, "text": text, "offsetInBeginSection": start, "beginSection": section}


def question(name: str, body: str, *snippets: dict, documents: tuple = ()) -> dict:
    addresses = [f"http://www.ncbi.nlm.nih.gov/pubmed/{document}" for document in documents]
    return {"id": name, "body": body, "documents": addresses, "snippets": list(snippets), "type": "factoid"}


TWELVE = quote(12, "Twelve.", 0, "title")
GOLDEN = {
    "7B1": [
        question("q1", "What is it? ", quote(11, "It is this.", 50), quote(11, "Its title.", 0, "title")),
        question("q2", "What else?", quote(11, "First\nof all.", 7), quote(11, "is this", 53), documents=(12, 13)),
    ],
    "8B2": [question("q3", "Only a title?", TWELVE, documents=(11,))],
    "10B1": [question(f"ten{number}", f"Is it {number}?", TWELVE) for number in range(40)],
    "12B4": [question("again", "What  is it?", quote(3, "Three.")), question("more", "Is it 0?", quote(4, "Four."))],
}
RELEASES["bioasq"] = {
    file.name: json.dumps({"questions": GOLDEN.get(file.name[7:].removesuffix("_golden.json"), [])})
    for file in catalogue.catalogue()["bioasq"].files
}

ABSTRACTS = {"M1": ("Statins", "They lower it."), "M2": ("Asthma", "It is treated. "), "M3": ("Salt", "Eat less.")}
LAYMEN = {"P1": "Heart", "P2": "Lungs", "P3": "heart", "P4": "Kidneys", "P5": "Unjudged", "P6": "Lungs"}
HEAD = ("query-id", "corpus-id", "score")
NFCORPUS = {
    "nfcorpus/corpus.jsonl": of_json(*({"_id": i, "title": a, "text": b} for i, (a, b) in ABSTRACTS.items())),
    "nfcorpus/queries.jsonl": of_json(*({"_id": i, "text": text, "metadata": {}} for i, text in LAYMEN.items())),
    "nfcorpus/qrels/train.tsv": lines(HEAD, ("P1", "M1", 1), ("P2", "M2", 1), ("P6", "M1", 1)),
    "nfcorpus/qrels/dev.tsv": lines(HEAD, ("P3", "M1", 2), ("P3", "M2", 1)),
    "nfcorpus/qrels/test.tsv": lines(HEAD, ("P4", "M3", 2)),
}
RELEASES["nfcorpus"] = {"beir/nfcorpus.zip": zipped(NFCORPUS)}

RELEASES["trec-dl-2019"] = {
    "trec-dl-2019/collection.tsv": lines((1, "one passage"), (2, "another passage")),
    "trec-dl-2019/queries.tsv": lines((7, "what is one"), (8, "what is two"), (9, "what is nobody's")),
    "trec-dl-2019/qrels.txt": "7 Q0 1 3\n7 Q0 2 0\n7 Q0 99 2\n8 Q0 2 1\n",
    "trec-dl-2019/run.bm25.trec": "8 Q0 99 1 3.5 tag\n8 Q0 2 2 3.5 tag\n7 Q0 1 1 -2e-1 tag\n",
}

# --- articles --------------------------------------------------------------------------------------

PROSE = "It has been the subject of many long books."
FOUNDED = "It was founded in 1905 by Dr. J. R. Smith. The U.S. branch is older! Short one. It is still there today."


def extracted(title: str, *body: str) -> str:
    """An article as WikiExtractor writes it."""
    text = "\n".join([title, "", *body])
    return f'<doc id="12" url="http://en.wikipedia.org/wiki?curid=12" title="{title}">\n{text}\n\n</doc>\n'


LIST = extracted('The "A" list', FOUNDED, PROSE, "History.", PROSE)
FILES = {"AA/wiki_00": LIST + extracted("B", "A list item, that is long", PROSE), "AA/wiki_01": extracted("Empty")}
RELEASES["wikipedia-2015"] = {"wikipedia-2015/wikiextractor-AA.tar.gz": FILES}

LICENCE = '   Retrieved from " http://en.wikipedia.org/wiki/X"\n   This reference article is mainly selected.\n'
SWEDEN = f"""   #copyright

Sweden (country)

2007 Schools Wikipedia Selection. Related subjects: Countries; European
Countries

                   Konungariket Sverige
   Motto: With the times is what they all say here today.
    - King         Carl XVI Gustaf
   ^a The Swedish language is de facto the national language of the place.

   The Kingdom of Sweden ( Swedish: Konungariket Sverige ) is a Nordic
   country in Scandinavia. It is bordered by Norway in the west, Finland
   in the northeast.

   Sweden has a low population density except in its metropolitan areas.

History

Prehistory

   The three large "royal mounds" at Gamla Uppsala are very old indeed.
   Enlarge
   The three large "royal mounds" at Gamla Uppsala are very old indeed.

   Soon after the end of the last ice age, Sweden became populated by
   hunter-gatherers.
   A picture of a hunter who gathers what he can find.
   A picture of a hunter who gathers what he can find.

     * A list item that is as long as a sentence is.

   ^1 A footnote that is as long as any sentence is.

   CAPTION: A table that has as many words as a sentence.

Literature

   {PROSE}
{LICENCE}"""
LINKS = "# The list of all links.\n\nSweden\tNorway\nSweden\t%C3%85land\nNorway\tSweden\n"
ALAND = f"   #copyright\n\nÅland\n\n{LICENCE}"
RELEASES["wikispeedia"] = {
    released.TEXTS: {"plain/Sweden.txt": SWEDEN, "plain/%C3%85land.txt": ALAND},
    released.GRAPH: {"graph/articles.tsv": "Sweden\n", "graph/links.tsv": LINKS},
}
