"""Collections, their parts and unions, and the closure construction: properties on any graph, and numbers by hand."""

from dataclasses import replace

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from words import make_collection

from retlib.core.errors import DataError, SettingError
from retlib.data.collection import (
    ALL,
    SPLITS,
    Collection,
    answered_within,
    closure,
    hash_position,
    retrieval_task,
    split_by_cluster,
    subsample,
    union,
    with_distractors,
)

ITEMS = [f"i{number:02d}" for number in range(12)]
SHARES = {"test": 0.3, "dev": 0.2}
patient = settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
two_items = st.permutations(ITEMS).map(lambda items: tuple(items[:2]))
labelled_pairs = st.dictionaries(two_items, st.integers(0, 1), max_size=25).map(
    lambda labels: [(*pair, label) for pair, label in labels.items()]
)


def frame(rows):
    return pd.DataFrame(rows, columns=["left", "right", "label"]).astype({"label": int})


def reachable(rows, item):
    """The items that positive pairs join to `item`, found by walking: an oracle for `closure`."""
    found, border = set(), {item}
    while border:
        found |= border
        steps = {(left, right) for left, right, label in rows if label == 1}
        border = {b for a, b in steps | {(b, a) for a, b in steps} if a in border} - found
    return found


def make_task(rows):
    texts = pd.Series({item: f"text of {item}" for item in ITEMS})
    split = split_by_cluster(texts.index, closure(frame(rows)), SHARES)
    return retrieval_task("toy", texts, frame(rows), split)


@patient
@given(labelled_pairs)
def test_closure_is_the_reachability_relation(rows):
    clusters = closure(frame(rows))
    assert set(clusters.index) == {item for left, right, label in rows if label == 1 for item in (left, right)}
    for item in clusters.index:
        members = set(clusters.index[clusters == clusters[item]])
        assert members == reachable(rows, item)  # so: reflexive, symmetric, transitive
        assert clusters[item] == min(members)
    # A cluster stays on its side when other items are added.
    many = pd.Index([*ITEMS, *(f"new{number}" for number in range(20))])
    before, after = (split_by_cluster(items, clusters, SHARES) for items in (pd.Index(ITEMS), many))
    assert before.equals(after[ITEMS])


def test_shares_are_respected():
    items = pd.Index([f"q{number}" for number in range(20_000)])
    split = split_by_cluster(items, pd.Series(dtype=object), {"test": 0.1, "dev": 0.05})
    shares = split.value_counts(normalize=True)
    assert shares["test"] == pytest.approx(0.10, abs=0.01) and shares["dev"] == pytest.approx(0.05, abs=0.01)


@patient
@given(labelled_pairs, st.sampled_from(SPLITS))
def test_a_task_judges_exactly_the_closure_and_never_across_sides(rows, split):
    task = make_task(rows)
    relevant = task.qrels.groupby("query_id")["doc_id"].agg(set).to_dict()
    assert set(relevant) == set(task.queries.index)
    assert all(documents == reachable(rows, query) for query, documents in relevant.items())  # itself included
    side = task.documents["split"]
    for names in (task.qrels[["query_id", "doc_id"]], task.pairs[["left", "right"]]):
        assert (side[names.iloc[:, 0]].to_numpy() == side[names.iloc[:, 1]].to_numpy()).all()
    assert (task.queries["split"] == side[task.queries.index]).all()
    smaller = task.candidates(split)
    assert (smaller.documents["split"] == split).all() and smaller.queries.equals(task.split(split))
    assert smaller.qrels.equals(task.judgments(split))


def test_pairs_across_sides_are_dropped_before_the_closure():
    # a-b and c-d are within sides; b-c joins them and must not.
    rows = [("a", "b", 1), ("b", "c", 1), ("c", "d", 1), ("a", "d", 0)]
    texts = pd.Series({item: item for item in "abcd"})
    task = retrieval_task("toy", texts, frame(rows), pd.Series({"a": "train", "b": "train", "c": "test", "d": "test"}))
    judged = set(zip(task.qrels["query_id"], task.qrels["doc_id"], strict=True))
    assert judged == {(q, d) for pair in ("ab", "cd") for q in pair for d in pair}
    assert task.pairs[["left", "right", "split"]].to_numpy().tolist() == [["a", "b", "train"], ["c", "d", "test"]]


@patient
@given(labelled_pairs, *[st.just(set(ITEMS)) | st.sets(st.sampled_from(ITEMS))] * 2)
def test_a_part_keeps_what_refers_to_nothing_else(rows, kept, asked):
    task = make_task(rows)
    sides = (kept, task.documents), (asked, task.queries)
    found = task.part(*(ALL if len(names) == 12 else each.index.isin(names) for names, each in sides))
    assert found.documents.equals(task.documents.loc[[item for item in task.documents.index if item in kept]])
    assert found.queries.equals(task.queries.loc[[item for item in task.queries.index if item in asked]])
    triples = [[q, d, grade] for q, d, grade in task.qrels.to_numpy().tolist() if q in asked and d in kept]
    assert found.qrels.to_numpy().tolist() == triples
    pairs = [row for row in task.pairs.to_numpy().tolist() if {row[0], row[1]} <= kept]
    assert found.pairs.to_numpy().tolist() == pairs
    assert found.name == task.name and found.provenance == task.provenance


def reading(lengths, golds):
    """Passages p0, p1, ... of so many sentences; a query for each sentence number in `golds`, (number, split)."""
    places = [(f"p{i}", place) for i, length in enumerate(lengths) for place in range(length)]
    documents = pd.DataFrame(places, columns=["passage", "position"], index=[f"{p}#{place}" for p, place in places])
    asked, (numbers, splits) = [f"q{i}" for i in range(len(golds))], zip(*golds, strict=True)
    answers = [documents.index[number % len(documents)] for number in numbers]
    qrels = pd.DataFrame({"query_id": asked, "doc_id": answers, "relevance": 1})
    queries = pd.DataFrame({"text": "y", "split": splits}, index=asked)
    return Collection("reading", documents.assign(text="x"), queries, qrels)


lengths_of_passages = st.lists(st.integers(1, 4), min_size=1, max_size=12)
golds = st.lists(st.tuples(st.integers(0, 99), st.sampled_from(SPLITS)), min_size=1, max_size=8)


@patient
@given(lengths_of_passages, golds, st.integers(1, 30))
def test_fewer_candidates_are_whole_passages_with_all_answers(lengths, golds, most):
    task = reading(lengths, golds)
    fewer = subsample(task, most)
    kept = fewer.documents["passage"].unique()
    assert fewer.documents.equals(task.documents[task.documents["passage"].isin(kept)])  # whole, in order
    assert fewer.judgments("test").equals(task.judgments("test"))
    assert fewer.queries.equals(task.queries) and fewer.name == task.name
    assert fewer.qrels.equals(task.qrels[task.qrels["doc_id"].isin(fewer.documents.index)])
    # About `most`: no fewer where there are as many, and more only to end a passage or for the answers.
    needed = set(task.documents.loc[task.judgments("test")["doc_id"], "passage"])
    answers = task.documents["passage"].isin(needed).sum()
    assert min(most, len(task.documents)) <= len(fewer.documents) < max(most + max(lengths), answers + 1)
    assert answers < most or set(kept) == needed


@patient
@given(lengths_of_passages, golds, st.integers(1, 30), st.integers(1, 4))
def test_every_query_is_asked_whose_answers_are_in_the_part(lengths, golds, most, queries):
    task = reading(lengths, golds)
    # A query more than once: its second answer may be out of the part.
    more = task.qrels.iloc[:1].assign(doc_id=task.documents.index[-1])
    task = replace(task, qrels=pd.concat([task.qrels, more]).drop_duplicates(["query_id", "doc_id"], ignore_index=True))
    part = subsample(task, most, queries)
    found = answered_within(task, part)
    assert found.documents.equals(part.documents)
    answers = task.qrels.groupby("query_id")["doc_id"].agg(set)
    inside = {query for query in task.split("test").index if answers[query] <= set(part.documents.index)}
    assert set(found.split("test").index) == inside | set(part.split("test").index)
    for split in ("train", "dev"):
        assert found.split(split).equals(part.split(split))
    inside = task.qrels["query_id"].isin(found.queries.index) & task.qrels["doc_id"].isin(part.documents.index)
    assert found.qrels.equals(task.qrels[inside])


PAGES, QUESTIONS = [f"d{i}" for i in range(10)], [f"q{i}" for i in range(12)]
graded = st.dictionaries(st.tuples(st.sampled_from(QUESTIONS), st.sampled_from(PAGES)), st.integers(0, 2))
sides = st.lists(st.sampled_from(SPLITS), min_size=len(QUESTIONS), max_size=len(QUESTIONS))
sizes = st.integers(1, 11), st.integers(1, 13)


def asking(grades, splits):
    """Ten documents; twelve queries with these splits; judgments of these grades."""
    documents = pd.DataFrame({"text": "x", "title": PAGES}, index=PAGES)
    queries = pd.DataFrame({"text": "y", "split": splits}, index=QUESTIONS)
    rows = [(*pair, grade) for pair, grade in grades.items()]
    return Collection("asking", documents, queries, pd.DataFrame(rows, columns=["query_id", "doc_id", "relevance"]))


def first(names, count):
    return set(sorted(names, key=hash_position)[:count])


@patient
@given(graded, sides, *sizes)
def test_a_smaller_task_keeps_what_its_test_queries_need(grades, splits, documents, questions):
    task = asking(grades, splits)
    found = subsample(task, documents, questions)
    every = set(task.split("test").index)
    tested, right = first(every, questions), [pair for pair, grade in grades.items() if grade > 0]
    needed = {doc for query, doc in right if query in tested}
    asked = {doc for query, doc in right if query not in every} - needed
    kept = needed | first(asked, max(0, documents - len(needed)))
    kept |= first(set(PAGES) - needed - asked, max(0, documents - len(kept)))
    assert set(found.split("test").index) == tested and found.name == task.name
    assert found.documents.equals(task.documents[task.documents.index.isin(kept)])  # in their order
    answered = {query for query, doc in right if doc in kept}
    for split in ("train", "dev"):
        assert set(found.split(split).index) == answered & set(task.split(split).index)
    left = {pair: grade for pair, grade in grades.items() if pair[0] in found.queries.index and pair[1] in kept}
    assert {(row.query_id, row.doc_id): row.relevance for row in found.qrels.itertuples()} == left


@patient
@given(graded, sides, *sizes, *map(st.permutations, (PAGES, QUESTIONS)))
def test_a_smaller_task_does_not_depend_on_the_order_of_rows_or_on_sizes_between(
    grades, splits, documents, questions, pages, others
):
    task = asking(grades, splits)
    found = subsample(task, documents, questions)
    turned = replace(task, documents=task.documents.loc[pages], queries=task.queries.loc[others])
    turned = subsample(turned, documents, questions)
    assert set(turned.documents.index) == set(found.documents.index)
    assert set(turned.queries.index) == set(found.queries.index)
    assert subsample(found, documents, questions).fingerprint == found.fingerprint
    assert set(found.documents.index) <= set(subsample(task, documents + 1, questions).documents.index)


def test_distractors_are_relevant_to_nothing():
    task = asking({("q0", "d3"): 1, ("q1", "d4"): 2}, ["test", "train"] * 6)
    added = pd.DataFrame({"text": ["a", "b"], "title": "t", "article": "u"}, index=["w#0", "d0"])
    found = with_distractors(task, added, "asking more")  # pages may be named as the collection's own
    assert found.name == "asking more" and len(found.documents) == len(PAGES) + 2
    assert found.qrels.equals(task.qrels) and found.queries.equals(task.queries)
    assert found.documents.loc["added/d0", "text"] == "b" and found.fingerprint != task.fingerprint


def toy():
    return make_task([("i00", "i01", 1), ("i01", "i02", 1), ("i03", "i04", 0)])


def test_equal_content_has_an_equal_fingerprint(monkeypatch):
    whole = toy().fingerprint
    monkeypatch.setattr("retlib.data.collection.BLOCK", 2)  # rows at a time
    other = replace(toy(), name="other", facts={"documents": 12})  # neither is content
    assert other.fingerprint == whole and other.part(other.documents.index != "i00").facts == other.facts


@pytest.mark.parametrize(
    "change",
    [
        lambda c: replace(c, documents=c.documents.assign(text=c.documents["text"].str.upper())),
        lambda c: replace(c, documents=c.documents.iloc[::-1]),
        lambda c: replace(c, documents=c.documents.assign(title="t")),
        lambda c: replace(c, queries=c.queries.assign(split="dev")),
        lambda c: replace(c, qrels=c.qrels.iloc[1:]),
        lambda c: replace(c, qrels=c.qrels.assign(relevance=0)),
        lambda c: replace(c, pairs=None),
    ],
)
def test_other_content_has_another_fingerprint(change):
    assert change(toy()).fingerprint != toy().fingerprint


@pytest.mark.parametrize(
    ("name", "change", "wrong"),
    [
        ("documents", lambda f: f.drop(columns="text"), "text"),
        ("queries", lambda f: f.drop(columns="split"), "split"),
        ("documents", lambda f: pd.concat([f, f.iloc[:1]]), "i00"),
        ("queries", lambda f: pd.concat([f, f.iloc[:1]]), "i00"),
        ("qrels", lambda f: f.assign(doc_id="ghost"), "doc_id.*ghost"),
        ("qrels", lambda f: f.assign(query_id="ghost"), "query_id.*ghost"),
        ("queries", lambda f: f.assign(split="exam"), "split.*exam"),
        ("pairs", lambda f: f.assign(split="exam"), "split.*exam"),
        ("pairs", lambda f: f.assign(left="ghost"), "left.*ghost"),
        ("qrels", lambda f: pd.concat([f, f.iloc[:1]]), "twice"),
        ("documents", lambda f: f.set_axis(range(12)), "id.* .0,"),
        ("queries", lambda f: f.rename({"i00": 5}), r"id.* \[5\]"),
        ("documents", lambda f: f.replace({"text": {"text of i00": None}}), "text.*(None|nan|str)"),
        ("queries", lambda f: f.assign(text=7), r"text.* \[7,"),
        ("qrels", lambda f: f.assign(relevance=1.0), r"relevance.* \[1.0,"),
        ("qrels", lambda f: f.assign(relevance=float("nan")), r"relevance.* \[nan,"),
    ],
)
def test_an_inconsistent_collection_is_refused(name, change, wrong):
    collection = toy()
    with pytest.raises(DataError, match=f"collection 'toy': {name}.*{wrong}"):
        replace(collection, **{name: change(getattr(collection, name))})


def test_splits_labels_and_sizes_are_selected_and_counted():
    """Three questions that ask the same, among twelve texts of three words."""
    task = replace(toy(), queries=toy().queries.assign(split="test"))
    assert task.split("test").index.tolist() == ["i00", "i01", "i02"] and len(task.split("train")) == 0
    assert len(task.judgments("test")) == 9 and len(task.judgments("train")) == 0
    assert [len(task.labelled("train", label)) for label in (1, 0, None)] == [2, 1, 3]
    (row,) = task.statistics().to_dict("records")
    assert (row["positive training pairs"], row["negative training pairs"]) == (2, 1)
    assert (row["test queries"], row["candidates"]) == (3, 12)
    assert (row["relevant candidates/query"], row["words/candidate"]) == (3.0, 3.0)
    with pytest.raises(SettingError):
        task.split("exam")
    with pytest.raises(DataError):
        replace(task, pairs=None).labelled("train")


def test_a_union_holds_all_under_prefixed_ids():
    first, second = make_collection("one"), make_collection("two")
    second = replace(second, documents=second.documents.drop(columns="title"))
    whole = union([first, second])
    assert whole.name == "one, two" and len(whole.documents) == 80 and len(whole.queries) == 240
    assert whole.documents["text"]["two/d3"] == second.documents["text"]["d3"]
    assert whole.documents.columns.tolist() == ["text", "collection"]  # the second has no title
    assert whole.queries.loc["one/q90"].tolist() == [*first.queries.loc["q90"], "one"]
    mine = whole.qrels[whole.qrels["query_id"] == "two/q0"]
    assert mine["doc_id"].tolist() == ("two/" + second.qrels[second.qrels["query_id"] == "q0"]["doc_id"]).tolist()
    assert whole.provenance == {"one/a": "b", "two/a": "b"} and union([first]) is first
    parts = [replace(part, queries=part.queries.assign(cluster=7)) for part in (first, second)]
    assert union(parts).queries["cluster"].unique().tolist() == ["one/7", "two/7"]
    with pytest.raises(DataError, match="one, one"):
        union([first, first])
