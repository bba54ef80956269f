"""Loaders of similar-question tasks and bulk text, on small files in the official formats."""

import csv
import io
import json
import tracemalloc
from itertools import islice

import pytest
from realdata import real

from retlib.core.errors import DataError
from retlib.data import datasets
from retlib.data.datasets import askubuntu, paralex, wikipedia_2015
from retlib.data.splits import closure
from retlib.data.text import quick_sentences, sentences


@pytest.fixture
def fresh(tmp_path, monkeypatch):
    """Load without what an earlier test kept."""
    monkeypatch.setenv("RETLIB_BUILD", str(tmp_path / "build"))
    datasets._load.cache_clear()
    yield datasets.load
    datasets._load.cache_clear()


def texts_of(collection, query_text):
    """The texts of the relevant documents of the query with that text."""
    query = collection.queries.index[collection.queries["text"] == query_text][0]
    relevant = collection.qrels["doc_id"][collection.qrels["query_id"] == query]
    return set(collection.documents["text"][relevant])


def check_no_leak(collection):
    """No text and no cluster of positive pairs is on two sides."""
    assert (collection.documents.groupby("text")["split"].nunique() == 1).all()
    side = collection.documents["split"]
    clusters = closure(collection.pairs)
    assert (side[clusters.index].groupby(clusters).nunique() == 1).all()


# Quora


def quora_tsv(rows):
    buffer = io.StringIO()
    writer = csv.writer(buffer, delimiter="\t", lineterminator="\n")
    writer.writerow(["id", "qid1", "qid2", "question1", "question2", "is_duplicate"])
    for number, (left, right, label) in enumerate(rows):
        writer.writerow([number, 2 * number + 1, 2 * number + 2, left, right, label])
    return buffer.getvalue()


QUORA = "quora/quora_duplicate_questions.tsv"


def test_quora_merges_equal_texts_and_reads_quotes_and_line_ends(write, fresh):
    rows = [
        ('What does "nota bene" mean?', " What is the meaning of nota bene? ", 1),
        ("What is the meaning of nota bene?", "Meaning of\nnota bene?", 1),
        ("Why is the sky blue?", "Why is grass green?", 0),
        ("Why is the sky blue?", " Why is the sky blue?", 1),  # equal after stripping: no pair
        ("Why is the sky blue?", "", 0),  # the release has three empty questions
    ]
    write(QUORA, quora_tsv(rows))
    collection = fresh("quora")
    assert set(collection.documents["text"]) == {
        'What does "nota bene" mean?',
        "What is the meaning of nota bene?",
        "Meaning of\nnota bene?",
        "Why is the sky blue?",
        "Why is grass green?",
    }
    expected = {'What does "nota bene" mean?', "What is the meaning of nota bene?", "Meaning of\nnota bene?"}
    assert all(texts_of(collection, text) == expected for text in expected)
    assert len(collection.queries) == 3
    check_no_leak(collection)
    assert collection.provenance[QUORA].endswith("(unknown)")


@pytest.mark.parametrize(
    ("change", "line", "problem"),
    [
        (lambda text: text.replace("is_duplicate", "label"), 1, "columns are not"),
        (lambda text: "", 1, "columns are not"),
        (lambda text: text[:-12], 4, "not 6 columns"),
        (lambda text: text.replace("a2?\t1", "a2?\t2"), 2, "not two questions, and 0 or 1"),
        (lambda text: text.encode().replace(b"b1", b"\xff\xfe"), 3, "not UTF-8"),
        (lambda text: text.replace("b1?", '"b1?'), 4, "not 6 columns"),  # a quote that is never closed
    ],
)
def test_a_damaged_quora_file_is_named_with_its_line(write, fresh, change, line, problem):
    text = quora_tsv([("a1?", "a2?", 1), ("b1?", "b2?", 0), ("c1?", "a question at the end?", 1)])
    path = write(QUORA, change(text))
    with pytest.raises(DataError, match=problem) as error:
        fresh("quora")
    for part in (f"{path}, line {line}:", "quoradata.quora.com", "python -m retlib fetch quora"):
        assert part in str(error.value)


@real(QUORA)
def test_real_quora(fresh):
    collection = fresh("quora")
    check_no_leak(collection)
    share = collection.documents["split"].value_counts(normalize=True)
    assert share["test"] == pytest.approx(0.10, abs=0.02) and share["dev"] == pytest.approx(0.05, abs=0.02)
    assert set(collection.pairs["label"]) == {0, 1}
    if "a fifth of the rows" in collection.provenance[QUORA]:
        assert len(collection.documents) == 119_224 and (collection.pairs["label"] == 1).sum() == 63_660


# AskUbuntu titles


def test_askubuntu_titles_keeps_test_titles_out_of_training(write, fresh):
    test = "duplicate\tT1\tT2\nduplicate\tT2\tT3\nnon-duplicate\tT1\tT4\n"
    train = "".join(f"duplicate\tA{n}\tB{n}\n" for n in range(60))
    train += "duplicate\tT4\tX\nnon-duplicate\tA0\tT1\nnon-duplicate\tA0\tA1\n"
    write("askubuntu-titles/test_titles.tsv", test)
    write("askubuntu-titles/train_titles.tsv", train)
    collection = fresh("askubuntu-titles")
    assert set(collection.candidates("test").documents["text"]) == {"T1", "T2", "T3", "T4"}
    assert set(collection.split("test")["text"]) == {"T1", "T2", "T3"}
    assert texts_of(collection, "T1") == {"T1", "T2", "T3"}
    assert "X" not in set(collection.documents["text"])  # a duplicate of a test title
    assert len(collection.labelled("train")) + len(collection.labelled("dev")) == 60
    assert 0 < len(collection.labelled("dev")) < 20
    check_no_leak(collection)


@pytest.mark.parametrize(
    ("bad", "problem"),
    [("duplicate\tonly one title", "not 3 fields"), ("same\ta\tb", "not a label"), ("duplicate\ta\t ", "not a label")],
)
def test_a_damaged_askubuntu_titles_file_is_named_with_its_line(write, fresh, bad, problem):
    write("askubuntu-titles/test_titles.tsv", "duplicate\ta\tb\n")
    path = write("askubuntu-titles/train_titles.tsv", f"duplicate\tc\td\n{bad}\n")
    with pytest.raises(DataError, match=problem) as error:
        fresh("askubuntu-titles")
    assert f"{path}, line 2:" in str(error.value)


@real("askubuntu-titles/test_titles.tsv")
def test_real_askubuntu_titles(fresh):
    collection = fresh("askubuntu-titles")
    check_no_leak(collection)
    test = collection.candidates("test")
    assert len(test.documents) == 10_126
    # One of the 4,371 titles in positive pairs is a duplicate of itself alone.
    assert len(test.queries) == 4370
    assert len(test.qrels) / len(test.queries) == pytest.approx(15.6, abs=0.05)
    # 5,727 positive training pairs touch no test title; 11 of them join equal titles.
    assert len(collection.labelled("train")) + len(collection.labelled("dev")) == 5716


# Disfl-QA


def disfl(pairs):
    return json.dumps({f"id{n}": {"original": a, "disfluent": b} for n, (a, b) in enumerate(pairs)})


def test_disfl_qa_moves_a_shared_cluster_to_the_guarded_side(write, fresh):
    shared = "Where is it?"
    write("disfl-qa/train.json", disfl([(shared, "Who no where is it?"), ("What now?", "When no what now?")]))
    write("disfl-qa/dev.json", disfl([("How far?", "How long no how far?")]))
    write("disfl-qa/test.json", disfl([(shared, "Where was I mean where is it?")]))
    collection = fresh("disfl-qa")
    assert texts_of(collection, shared) == {shared, "Who no where is it?", "Where was I mean where is it?"}
    assert collection.documents["split"].value_counts().to_dict() == {"test": 3, "dev": 2, "train": 2}
    check_no_leak(collection)


@pytest.mark.parametrize("placeholder", ["#VALUE!", "Question n/a", "no question N/A", " ", "What now?"])
def test_disfl_qa_leaves_out_questions_without_a_disfluent_version(write, fresh, placeholder):
    write("disfl-qa/train.json", disfl([("What now?", placeholder), ("How far?", "How long no how far?")]))
    for part in ("dev", "test"):
        write(f"disfl-qa/{part}.json", "{}")
    assert set(fresh("disfl-qa").documents["text"]) == {"How far?", "How long no how far?"}


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (disfl([("What?", "Who no what?")])[:-5], "line 1:"),
        ('{"id": {"original": "What?"}}', "not question ids with"),
        ("[]", "not question ids with"),
        (b'{"id": "\xff"}', "utf-8"),
    ],
)
def test_a_damaged_disfl_qa_file_is_named(write, fresh, content, problem):
    for part in ("dev", "test"):
        write(f"disfl-qa/{part}.json", "{}")
    path = write("disfl-qa/train.json", content)
    with pytest.raises(DataError, match=problem) as error:
        fresh("disfl-qa")
    assert str(path) in str(error.value) and "github.com/google-research-datasets/Disfl-QA" in str(error.value)


@real("disfl-qa/test.json")
def test_real_disfl_qa(fresh):
    collection = fresh("disfl-qa")
    check_no_leak(collection)
    assert [len(collection.labelled(split)) for split in ("train", "dev", "test")] == [7145, 997, 3630]
    assert not collection.documents["text"].str.contains("VALUE|^$").any()


# AskUbuntu of Lei et al.

CORPUS = {str(n): f"title of {n}" for n in range(1, 16)} | {"16": "title of 12", "17": ""}
SCORES = "9.5 8.25 7.0"


def lei(write, corpus=CORPUS, train=None, dev=None, test=None):
    paths = [
        write("askubuntu/text_tokenized.txt.gz", "".join(f"{q}\t{t}\tbody of {q}\n" for q, t in corpus.items())),
        write("askubuntu/train_random.txt", train or "1\t2 3\t8 9\n4\t5\t9 1\n"),
        write("askubuntu/dev.txt", dev or f"6\t7\t7 8 9\t{SCORES}\n"),
        write("askubuntu/test.txt", test or f"10\t11 12\t11 12 13\t{SCORES}\n14\t\t13 15 11\t{SCORES}\n"),
    ]
    return paths


def test_askubuntu_has_the_official_splits(write, fresh):
    lei(write)
    collection = fresh("askubuntu")
    ids = {split: set(collection.candidates(split).documents.index) for split in ("train", "dev", "test")}
    assert ids["test"] == {"10", "11", "12", "13", "14", "15"}  # query 14, without a similar question, too
    assert ids["dev"] == {"6", "7", "8", "9"}
    assert ids["train"] == {"1", "2", "3", "4", "5", "16"}  # 17 has no title
    assert set(collection.split("test").index) == {"10", "11", "12"}
    assert texts_of(collection, "title of 10") == {"title of 10", "title of 11", "title of 12"}
    assert set(collection.split("train").index) == {"1", "2", "3", "4", "5"}
    # Judged candidates are near-misses; the random questions of the training file are not.
    assert [len(collection.labelled(split, 0)) for split in ("train", "dev", "test")] == [0, 2, 4]
    assert [len(collection.labelled(split, 1)) for split in ("train", "dev", "test")] == [3, 1, 2]


def test_askubuntu_drops_training_pairs_that_touch_a_held_out_title(write, fresh):
    # 3 is a question of the test side; 16 has the title of 12, which is.
    test = f"10\t11 12\t11 12 3\t{SCORES}\n"
    lei(write, train="1\t2 3\t8\n4\t16\t9\n4\t5\t9\n", test=test)
    pairs = fresh("askubuntu").labelled("train")
    assert pairs[["left", "right"]].to_numpy().tolist() == [["1", "2"], ["4", "5"]]


@pytest.mark.parametrize(
    ("files", "which", "problem"),
    [
        ({"corpus": CORPUS | {"18\textra": "t"}}, 0, "line 18: not 3 fields between tabs (5 fields)"),
        ({"corpus": CORPUS | {"x": "t"}}, 0, "line 18: not a question id, title and body ('x' is no question id)"),
        ({"train": "1\t2\t8\n4\t5\n"}, 1, "line 2: not 3 fields"),
        ({"train": "1\t2\t8\n4\t99\t9\n"}, 1, "line 2: 1 pairs name questions without a title"),
        ({"dev": f"6\t7\t8 9 10\t{SCORES}\n"}, 2, "line 1: not a query with judged candidates"),
        ({"test": "10\t11\t11 12 13\t9.5 8.25\n"}, 3, "line 1: not a query with judged candidates"),
        ({"test": f"10\t11\t11 12 17\t{SCORES}\n"}, 3, "line 1: not a query with judged candidates (question '17'"),
    ],
)
def test_damaged_askubuntu_files_are_named_with_their_line(write, fresh, files, which, problem):
    paths = lei(write, **files)
    with pytest.raises(DataError) as error:
        fresh("askubuntu")
    assert f"{paths[which]}, {problem}" in str(error.value)


def test_a_truncated_askubuntu_archive_is_named(write, fresh):
    path = lei(write)[0]
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DataError, match="cannot be unpacked to its end"):
        fresh("askubuntu")


def test_a_few_training_questions_without_title_are_left_out(write, fresh):
    corpus = {str(n): f"title {n}" for n in range(1, 2001)}
    train = "".join(f"{n}\t{n + 1}\t5\n" for n in range(100, 1100, 2)) + "98\t9999\t5\n"
    lei(write, corpus=corpus, train=train)
    assert len(fresh("askubuntu").labelled("train")) == 500
    assert askubuntu.TOLERATED > 1 / 501


# Paralex


def question_line(question, lemmas):
    return f"{question}\t{question.lower()}\tWP VBZ\t{lemmas}\n"


def test_paralex_joins_both_directions_and_names_questions_as_they_were_asked(write, fresh):
    write(
        "paralex/questions.txt",
        question_line("Who wrote it?", "who write it ?") + question_line("Who has written it?", "who have write it ?"),
    )
    write(
        "paralex/word_alignments.txt",
        "who write it ?\twho have write it ?\t0-0 1-2\n"
        "who have write it ?\twho write it ?\t0-0 2-1\n"
        "who write it ?\twho be the author ?\t0-0\n",
    )
    collection = fresh("paralex")
    # The author question is not in questions.txt and keeps its lemmas.
    assert set(collection.documents["text"]) == {"Who wrote it?", "Who has written it?", "who be the author ?"}
    assert len(collection.pairs) == 2
    assert len(texts_of(collection, "Who wrote it?")) == 3
    check_no_leak(collection)


def test_paralex_reads_no_further_than_its_limit(write, monkeypatch):
    write("paralex/questions.txt", question_line("A?", "a ?"))
    write("paralex/word_alignments.txt", "a ?\tb ?\t0-0\nc ?\td ?\t0-0\nthe rest is damaged\n")
    monkeypatch.setattr(paralex, "LIMIT", 2)
    assert len(paralex.load_paralex().pairs) == 2
    monkeypatch.setattr(paralex, "LIMIT", None)
    with pytest.raises(DataError, match="word_alignments.txt, line 3: not 3 fields between tabs"):
        paralex.load_paralex()


def test_paralex_takes_a_few_odd_question_lines_but_not_many(write):
    write("paralex/word_alignments.txt", "a 1 ?\ta 2 ?\t0-0\n")
    good = [question_line(f"A {n}?", f"a {n} ?") for n in range(3000)]
    write("paralex/questions.txt", "".join([*good, "odd\tline\n"]))
    assert set(paralex.load_paralex().documents["text"]) == {"A 1?", "A 2?"}
    write("paralex/questions.txt", "".join([*good[:5], "odd\tline\n"]))
    with pytest.raises(DataError, match="questions.txt, line 6: this and 0 more of 6 lines"):
        paralex.load_paralex()


# Bulk text


def article(title, *body):
    return f'<doc id="12" url="http://en.wikipedia.org/wiki?curid=12" title="{title}">\n' + "\n".join(
        [title, "", *body, "</doc>", ""]
    )


WIKIPEDIA = "wikipedia-2015/wikiextractor-AA.tar.gz"
PARAGRAPH = "It was founded in 1905 by Dr. J. R. Smith. The U.S. branch is older! Short one. It is still there today."


def test_wikipedia_gives_articles_and_the_sentences_of_running_text(write):
    first = article(
        'The "A" list', PARAGRAPH, "History of the Society in the 19th century.", "A list item, that is long"
    )
    write(WIKIPEDIA, {"AA/wiki_00": first + article("B", PARAGRAPH), "AA/wiki_01": article("Empty")})
    assert [title for title, _ in wikipedia_2015.articles()] == ['The "A" list', "B", "Empty"]
    assert next(wikipedia_2015.articles())[1].split("\n")[0] == PARAGRAPH  # the repeated title is gone
    sentences = ["It was founded in 1905 by Dr. J. R. Smith.", "The U.S. branch is older!", "It is still there today."]
    heading = ["History of the Society in the 19th century."]  # eight words and a full stop: taken for a sentence
    assert list(datasets.text("wikipedia-2015")) == [*sentences, *heading, *sentences]


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        (article("A", "one", "two").replace("</doc>", ""), 6, "the article 'A' is not closed"),
        (article("A", "one").replace("</doc>", "") + article("B", "two"), 6, "not opened, or not closed"),
        ("A line outside any article.\n", 1, "not opened, or not closed"),
    ],
)
def test_a_damaged_wikipedia_file_is_named_with_its_line(write, text, line, problem):
    path = write(WIKIPEDIA, {"AA/wiki_00": text})
    with pytest.raises(DataError, match=problem) as error:
        list(wikipedia_2015.articles())
    assert f"{path}: AA/wiki_00, line {line}:" in str(error.value)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.999])
def test_a_truncated_archive_is_never_taken_for_a_whole_one(write, share):
    files = {f"AA/wiki_{n:02d}": article(f"Number {n}", *(f"{PARAGRAPH} {n} {m}" for m in range(50))) for n in range(9)}
    path = write(WIKIPEDIA, files)
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(DataError, match="cannot be unpacked to its end|is not closed"):
        list(wikipedia_2015.articles())


def test_bulk_text_is_streamed(write):
    body = [f"{PARAGRAPH} Paragraph {n} has no end in sight." for n in range(2000)]
    write(WIKIPEDIA, {f"AA/wiki_{n:02d}": article(str(n), *body) for n in range(10)})
    list(islice(datasets.text("wikipedia-2015"), 10))  # what is set up once
    tracemalloc.start()
    try:
        count = sum(1 for _ in datasets.text("wikipedia-2015"))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert count == 10 * 2000 * 4
    assert peak < 3e6  # one of ten files is 0.3 MB; the whole text is 2.9 MB, its sentences more


def test_wikispeedia_joins_wrapped_lines_and_leaves_the_licence_out(write):
    page = (
        "   #copyright\n\nAnarchism\n\n   Anarchism is the name of a political philosophy or a\n"
        "   group of doctrines. It is\n   an old word with many senses.\n\n   Part of the\n   Politics series\n\n"
        '   Retrieved from " http://en.wikipedia.org/wiki/Anarchism"\n'
        "   This reference article is mainly selected from the English Wikipedia.\n"
    )
    write("wikispeedia/wikispeedia_articles_plaintext.tar.gz", {"plaintext_articles/Anarchism.txt": page})
    assert list(datasets.text("wikispeedia")) == [
        "Anarchism is the name of a political philosophy or a group of doctrines.",
        "It is an old word with many senses.",
    ]


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("One ends here. Two begins. ", 2),
        ('He said "Stop." Then he left.', 2),
        ("Mr. Smith met Prof. A. B. Jones on 3 Jan. 1999.", 1),
        ("It cost 3.5 million. 400 came!", 2),
        ("The U.S. Army and the U.K. Navy agree, e.g. George says so.", 1),
        ("Is it? Yes! (So they say.) It is.", 4),
        ("no capital follows. so it stays one", 1),
    ],
)
def test_quick_sentences(text, count):
    found = quick_sentences(text.strip())
    assert len(found) == count
    assert " ".join(found) == text.strip()  # nothing is lost


@real(WIKIPEDIA)
def test_quick_sentences_agree_with_the_exact_ones(fresh):
    paragraphs = (line for _, text in wikipedia_2015.articles() for line in text.split("\n") if len(line) > 200)
    exact, quick, both = 0, 0, 0
    for paragraph in islice(paragraphs, 0, 4000, 20):
        a = {"".join(sentence.split()) for sentence in sentences(paragraph)}
        b = {"".join(sentence.split()) for sentence in quick_sentences(paragraph)}
        exact, quick, both = exact + len(a), quick + len(b), both + len(a & b)
    assert both / exact > 0.94 and both / quick > 0.94
