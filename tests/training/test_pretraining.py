"""Pre-training pairs and masked passages: what is drawn, how it is put together, how it is counted."""

from array import array
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retlib.core import runtime
from retlib.core.errors import DataError, SettingError
from retlib.data.articles import Corpus
from retlib.data.collection import Article
from retlib.data.passages import overlap
from retlib.data.text import TokenTable
from retlib.studies.part2 import examples, statistics
from retlib.training import pretraining
from retlib.training.pretraining import KEPT, TASKS, InverseCloze, MaskedPassages, PretrainingPairs, allowed


class Tokenizer:
    """Words between spaces as units, numbered as they come."""

    pad, unknown, cls, sep, mask = range(5)

    def __init__(self):
        self.ids = {f"[{i}]": i for i in range(5)}

    def __len__(self):
        return len(self.ids)

    def encode(self, texts):
        ids, offsets = array("i"), array("q", [0])
        for text in texts:
            ids.extend(self.ids.setdefault(word, len(self.ids)) for word in text.split())
            offsets.append(len(ids))
        return TokenTable(np.array(ids), np.array(offsets))

    def decode(self, ids):
        units = list(self.ids)
        return " ".join(units[i] for i in ids)


def split(text):
    return text.split(".")


ARTICLES = (
    Article("apple", "Apple", ("a1 a1. a2 a2 a2. a3", "b1. b2 b2", "c1 c1 c1 c1."), 2, ("pear", "unheard of", "pear")),
    Article("pear", "Green Pear", ("d1. d2 d2. d3 d3 d3",), 1, ("apple", "pear")),
    Article("empty", "Empty", ("", " . "), 1, ("apple",)),
    Article("plum", "Plum", ("e1 e1", "", "f1. f2"), 2, ("empty", "apple")),
    Article("loquat", "Loquat", (".", "g1. g2."), 1, ()),
)


def build(articles=ARTICLES):
    tokenizer = Tokenizer()
    return Corpus.build(iter(articles), tokenizer.encode, split), tokenizer


def rows_as_text(table, tokenizer):
    return [tokenizer.decode(table.row(i)) for i in range(len(table))]


@st.composite
def encyclopedias(draw):
    """Articles whose sentences are all different, and of which every task can be drawn."""
    count = draw(st.integers(2, 6))
    articles = []
    for a in range(count):
        sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
        passages = tuple(
            ".".join(" ".join(f"{a}-{p}-{s}-{w}" for w in range(1 + (a + p + s) % 3)) for s in range(size))
            for p, size in enumerate(sizes)
        )
        links = tuple(f"n{target}" for target in draw(st.lists(st.integers(0, count), max_size=4)))
        opening = draw(st.integers(1, len(sizes)))
        if draw(st.booleans()):  # a first section without a sentence
            passages, opening = (".", *passages), 1
        articles.append(Article(f"n{a}", f"title {a}", passages, opening, links))
    first = Article("n-first", "title first", ("x.y", "z"), 1, ("n-second",))
    return [first, Article("n-second", "title second", ("u.v",), 1, ("n-first",)), *articles]


def test_a_corpus_holds_sentences_passages_articles_and_known_links():
    corpus, tokenizer = build()
    assert corpus.names == ["apple", "pear", "plum", "loquat"]
    assert rows_as_text(corpus.titles, tokenizer) == ["Apple", "Green Pear", "Plum", "Loquat"]
    sentences = "a1 a1|a2 a2 a2|a3|b1|b2 b2|c1 c1 c1 c1|d1|d2 d2|d3 d3 d3|e1 e1|f1|f2|g1|g2"
    assert rows_as_text(corpus.sentences, tokenizer) == sentences.split("|")
    assert corpus.passages.tolist() == [0, 3, 5, 6, 9, 10, 12, 14]
    assert corpus.articles.tolist() == [0, 3, 4, 6, 7]
    # A passage without a sentence is none, in the first section too.
    assert corpus.opening.tolist() == [2, 1, 1, 0]
    # Links to oneself, to the unknown and a second time are dropped.
    assert corpus.link_starts.tolist() == [0, 1, 2, 3, 3]
    assert corpus.link_targets.tolist() == [1, 0, 0]


def test_the_fingerprint_changes_with_content():
    changes = ({}, {"links": ()}, {"opening": 1}, {"title": "Crab Apple"}, {"name": "medlar"})
    made = [build((replace(ARTICLES[0], **each), *ARTICLES[1:]))[0].fingerprint for each in changes]
    assert len({*made, build(ARTICLES[:3])[0].fingerprint}) == 6


@pytest.mark.parametrize("articles", [ARTICLES, [replace(ARTICLES[1], title="")]])  # the second without links
def test_a_saved_corpus_is_read_as_it_was(articles, tmp_path):
    corpus, _ = build(articles)
    corpus.save(tmp_path / "corpus")
    read = Corpus.load(tmp_path / "corpus")
    assert read.fingerprint == corpus.fingerprint
    pairs, again = (PretrainingPairs(c, ["ict"], Tokenizer.sep).draw(0, 4, 0) for c in (corpus, read))
    assert pairs.documents.ids.tolist() == again.documents.ids.tolist()


def test_articles_that_make_no_corpus_are_errors():
    with pytest.raises(DataError, match="hold no sentence"):
        build(ARTICLES[2:3])
    with pytest.raises(DataError, match="two articles have the name 'pear'"):
        build([*ARTICLES, ARTICLES[1]])


def mixed(corpus, tasks, **options):
    return PretrainingPairs(corpus, tasks, Tokenizer.sep, **options).mixed


@given(articles=encyclopedias(), seed=st.integers(0, 99))
def test_tasks_pair_a_sentence_with_a_passage_as_the_paper_says(articles, seed):
    corpus, _ = build(articles)
    drawn = {name: mixed(corpus, [name])(np.random.default_rng(seed), 40) for name in ("ict", "bfs", "wlp")}
    ict, home = drawn["ict"], {name: corpus.passage_of(each.query) for name, each in drawn.items()}
    assert (home["ict"] == ict.passage).all() and (ict.removed == ict.query).all()
    assert (corpus.sentences_per_passage[ict.passage] >= 2).all()
    own = {name: corpus.article_of(rows) for name, rows in home.items()}
    other = {name: corpus.article_of(each.passage) for name, each in drawn.items()}
    for name in ("bfs", "wlp"):  # the query is of a first section
        assert (home[name] - corpus.articles[own[name]] < corpus.opening[own[name]]).all()
        assert (drawn[name].removed == KEPT).all()
    assert (own["bfs"] == other["bfs"]).all() and (home["bfs"] != drawn["bfs"].passage).all()
    links = {each.name: each.links for each in articles}
    assert all(corpus.names[a] in links[corpus.names[b]] for a, b in zip(own["wlp"], other["wlp"], strict=True))
    assert (own["wlp"] != other["wlp"]).all()


@pytest.mark.parametrize("task", TASKS.names())
@given(articles=encyclopedias())
def test_queries_and_pairs_are_counted_as_they_can_be_drawn(task, articles):
    corpus, _ = build(articles)
    source = PretrainingPairs(corpus, [task], Tokenizer.sep)
    drawn, (made,) = source.mixed(np.random.default_rng(0), 6000), source.made
    assert len(set(drawn.query.tolist())) == made.queries
    # The rarest of the few pairs has about a chance of one in several hundred in each draw.
    assert len(set(zip(drawn.query.tolist(), drawn.passage.tolist(), strict=True))) == made.pairs


def test_ict_draws_passages_and_their_sentences_uniformly():
    drawn = mixed(build()[0], ["ict"])(np.random.default_rng(0), 40_000)
    shares = np.bincount(drawn.query, minlength=14) / 40_000
    # Five passages have two sentences or more; the sixth and the tenth sentence are alone in theirs.
    expected = [*[1 / 15] * 3, 0.1, 0.1, 0, *[1 / 15] * 3, 0, 0.1, 0.1, 0.1, 0.1]
    assert shares == pytest.approx(expected, abs=0.007)


def test_bfs_draws_articles_then_sentences_then_passages_uniformly():
    drawn = mixed(build()[0], ["bfs"])(np.random.default_rng(0), 40_000)
    shares = np.bincount(drawn.query, minlength=14) / 40_000
    assert shares == pytest.approx([*[0.1] * 5, 0, 0, 0, 0, 0.5, 0, 0, 0, 0], abs=0.01)
    passages = np.bincount(drawn.passage[drawn.query < 3], minlength=7)
    assert passages / passages.sum() == pytest.approx([0, 0.5, 0.5, 0, 0, 0, 0], abs=0.02)


def test_a_mixture_draws_each_pair_from_a_task_chosen_uniformly():
    corpus, _ = build()
    drawn = mixed(corpus, ["wlp", "ict", "bfs"])(np.random.default_rng(0), 30_000)
    home = corpus.passage_of(drawn.query)
    same = corpus.article_of(home) == corpus.article_of(drawn.passage)
    tasks = np.select([home == drawn.passage, same], [1, 2], 0)
    assert np.bincount(tasks) / 30_000 == pytest.approx([1 / 3] * 3, abs=0.01)
    assert ((drawn.removed == drawn.query) == (tasks == 1)).all()


@pytest.mark.parametrize("tasks", [["ict"], ["bfs"], ["wlp"], ["ict", "bfs", "wlp"]])
@given(articles=encyclopedias())
def test_the_share_of_a_passage_is_its_chance_to_be_drawn(tasks, articles):
    corpus, tokenizer = build(articles)
    source, count = PretrainingPairs(corpus, tasks, tokenizer.sep), 6000
    shares = np.mean([task.shares() for task in source.made], axis=0)
    assert shares.sum() == pytest.approx(1)
    drawn = source.mixed(np.random.default_rng(0), count)
    seen = np.bincount(drawn.passage, minlength=len(shares)) / count
    assert (np.abs(seen - shares) <= 5 * np.sqrt(shares * (1 - shares) / count)).all()
    pairs = source.draw(0, 8, 0)
    assert pairs.log_shares.dtype == np.float32
    assert np.exp(pairs.log_shares) == pytest.approx(shares[pairs.groups], rel=1e-5)


@pytest.mark.parametrize("keep", [0.0, 0.1, 1.0])
def test_keep_is_the_share_of_queries_that_stay(keep):
    drawn = mixed(build()[0], ["ict"], keep=keep)(np.random.default_rng(1), 20_000)
    assert (drawn.removed == KEPT).mean() == pytest.approx(keep, abs=0.01 if 0 < keep < 1 else 0)


def test_documents_are_title_separator_and_passage_without_the_query():
    corpus, tokenizer = build()
    source = PretrainingPairs(corpus, ["ict", "bfs", "wlp"], tokenizer.sep)
    titles = ["Apple"] * 3 + ["Green Pear"] + ["Plum"] * 2 + ["Loquat"]
    texts = [p.replace(".", " ").split() for a in ARTICLES for p in a.passages if p.strip(" .")]
    for step in range(20):
        drawn, pairs = source.mixed(np.random.default_rng((5, step)), 8), source.draw(step, 8, seed=5)
        assert len(pairs) == 8 and pairs.labels is None
        assert pairs.groups.tolist() == drawn.passage.tolist()
        assert rows_as_text(pairs.queries, tokenizer) == rows_as_text(corpus.sentences.take(drawn.query), tokenizer)
        for i, document in enumerate(rows_as_text(pairs.documents, tokenizer)):
            title, passage = document.split(" [3]")
            query = tokenizer.decode(pairs.queries.row(i)).split()
            inside = drawn.removed[i] != KEPT
            assert title == titles[drawn.passage[i]]
            assert passage.split() == [w for w in texts[drawn.passage[i]] if not inside or w not in query]


def test_copies_of_a_passage_are_one_group():
    copy = Article("copy", "Apple", ("b1. b2 b2", "a1 a1. a2 a2 a2. a4"), 2)
    corpus, tokenizer = build((*ARTICLES, copy))
    source = PretrainingPairs(corpus, ["ict"], tokenizer.sep)
    seeded = [np.random.default_rng((0, step)) for step in range(9)]
    drawn = [(source.mixed(rng, 9).passage, source.draw(step, 9, 0).groups) for step, rng in enumerate(seeded)]
    for rows, groups in drawn:
        first = next((row for row in rows if row in (1, 7)), None)  # the copy of passage 1 is passage 7
        assert groups.tolist() == [first if row in (1, 7) else row for row in rows]
    assert any({1, 7} <= {*rows} for rows, _ in drawn)


def test_batches_depend_on_seed_and_step_alone():
    corpus, tokenizer = build()
    pairs, masked = PretrainingPairs(corpus, ["ict", "wlp"], tokenizer.sep), MaskedPassages(corpus, tokenizer)
    for draw in (lambda *given: pairs.draw(*given).documents.ids, lambda *given: masked.draw(*given).inputs.ids):
        forward = [draw(step, 6, 1).tolist() for step in range(10)]
        np.random.seed(3)  # noqa: NPY002 - the global state must not matter
        assert forward == [draw(step, 6, 1).tolist() for step in reversed(range(10))][::-1]
        assert forward != [draw(step, 6, 2).tolist() for step in range(10)]
        assert len({str(batch) for batch in forward}) == 10


def test_the_length_counts_queries_and_no_batch_is_larger():
    corpus, tokenizer = build()
    for tasks, count in ((["ict"], 12), (["bfs"], 6), (["wlp"], 8), (["ict", "bfs", "wlp"], 26)):
        source = PretrainingPairs(corpus, tasks, tokenizer.sep)
        assert len(source) == len(source.draw(0, 1000, 0)) == count


def test_what_cannot_be_drawn_is_said():
    corpus, tokenizer = build()

    def pairs(tasks=("ict",), corpus=corpus, **options):
        return PretrainingPairs(corpus, tasks, tokenizer.sep, **options)

    for tasks, named in ((["bfs", "itc"], "'ict'"), ([], "ict"), (["ict", "ict"], "ict")):
        with pytest.raises(SettingError, match=named):
            pairs(tasks)
    for keep in (-0.1, 1.5):
        with pytest.raises(SettingError, match=f"keep.*{keep}"):
            pairs(keep=keep)
    with pytest.raises(SettingError, match="batch_size = 0"):
        pairs().draw(0, 0, 0)
    alone, _ = build([Article("a", "A", ("one",), 1, ("b",)), Article("b", "B", (".", "two"), 1, ())])
    for task in ("ict", "bfs", "wlp"):
        with pytest.raises(DataError, match=task):
            pairs([task], alone)
    with pytest.raises(DataError, match="wlp needs links"):
        pairs(["ict", "wlp"], build(ARTICLES[:1])[0])


@given(articles=encyclopedias(), seed=st.integers(0, 99), share=st.floats(0.01, 1), length=st.integers(1, 9))
def test_masking_can_be_undone_and_takes_a_share_of_each_passage(articles, seed, share, length):
    corpus, tokenizer = build(articles)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pretraining, "MASKED", share)
        inputs, positions, originals = MaskedPassages(corpus, tokenizer, length).draw(2, 7, seed)
    assert originals.dtype == positions.dtype == np.int64
    assert (np.diff(positions) > 0).all()
    whole = inputs.ids.copy()
    whole[positions] = originals
    passages = {
        tuple(corpus.sentences.ids[corpus.sentences.offsets[a] : corpus.sentences.offsets[b]][:length])
        for a, b in zip(corpus.passages[:-1], corpus.passages[1:], strict=True)
    }
    for start, stop in zip(inputs.offsets[:-1], inputs.offsets[1:], strict=True):
        assert tuple(whole[start:stop]) in passages
        masked = ((positions >= start) & (positions < stop)).sum()
        assert masked == max(1, np.rint((stop - start) * share))


def test_of_the_chosen_tokens_most_become_the_mask_some_another_and_some_stay():
    text = " ".join(f"unit{i}" for i in range(1000))
    corpus, tokenizer = build([Article("a", "A", (text,) * 50, 1, ())])
    inputs, positions, originals = MaskedPassages(corpus, tokenizer, 1000).draw(0, 50, 0)
    assert len(positions) == 0.15 * 50_000
    now = inputs.ids[positions]
    assert (now == tokenizer.mask).mean() == pytest.approx(0.8, abs=0.02)
    assert (now == originals).mean() == pytest.approx(0.1, abs=0.015)
    other = now[(now != tokenizer.mask) & (now != originals)]
    assert len(other) / len(now) == pytest.approx(0.1, abs=0.015)
    assert not set(other.tolist()) & {tokenizer.pad, tokenizer.cls, tokenizer.sep}
    assert len(set(other.tolist())) > 400
    # Every place of a passage is as likely as any other.
    assert np.histogram(positions % 1000, bins=4, range=(0, 1000))[0] == pytest.approx([1875] * 4, rel=0.07)


def test_examples_are_texts_of_the_same_choice():
    shown = examples(ARTICLES, split, "ict", 30, seed=1)
    apple = shown[shown["query"] == "a2 a2 a2"].iloc[0]
    assert apple.tolist() == ["ict", "Apple", "a2 a2 a2", "Apple", "a1 a1 a3"]
    linked = examples(ARTICLES, split, "wlp", 30, seed=1)
    assert set(zip(linked["query_title"], linked["document_title"], strict=True)) == {
        ("Green Pear", "Apple"), ("Apple", "Green Pear"), ("Apple", "Plum"),
    }  # fmt: skip
    body = examples(ARTICLES, split, "bfs", 30, seed=1)
    assert set(body.loc[body["query"] == "e1 e1", "document"]) == {"f1 f2"}


def test_statistics_count_pairs_and_measure_tokens():
    two = [
        Article("a", "The A", ("x y z. x y z", "q"), 1, ()),
        Article("b", "The B", ("x y z. x y z. x y z",), 1, ("a",)),
    ]
    corpus, tokenizer = build(two)
    table = statistics(PretrainingPairs(corpus, ["ict", "bfs", "wlp"], tokenizer.sep))
    assert table.index.tolist() == ["ict", "bfs", "wlp"]
    # Queries of three tokens; documents of two for the title, one for the separator, and the passage.
    assert table["#pairs"].tolist() == [5, 2, 2]
    assert table["avg. #query tokens"].tolist() == [3, 3, 3]
    assert table.loc[["bfs", "wlp"], "#doc tokens"].tolist() == [4, 12]
    assert 6 <= table.loc["ict", "#doc tokens"] <= 9
    assert table.loc[["bfs", "wlp"], "#tokens"].tolist() == [14, 30]
    cut = statistics(PretrainingPairs(corpus, ["wlp"], tokenizer.sep, 2, 7))
    assert cut.loc["wlp", ["avg. #query tokens", "#doc tokens"]].tolist() == [2, 7]


TEXTS = st.lists(st.text("abcd ", max_size=25).map(" ".join), max_size=6)


@given(texts=TEXTS, passages=TEXTS, n=st.integers(1, 4))
def test_overlap_is_the_share_of_runs_that_stand_in_a_text(texts, passages, n):
    def runs(text, n):
        words = text.split()
        return [tuple(words[i : i + n]) for i in range(len(words) - n + 1)]

    shares = overlap(iter(texts), iter(passages), n)
    known = {run for text in texts for run in runs(text, n)}
    assert len(shares) == len(passages)
    for passage, share in zip(passages, shares, strict=True):
        found = [run in known for run in runs(passage, n)]
        assert share == pytest.approx(np.mean(found)) if found else np.isnan(share)


@pytest.mark.parametrize(
    ("passages", "left"), [(("s. t", "u. v"), ["ict", "bfs"]), (("s. t. u",), ["ict"]), (("s", "t"), ["bfs"])]
)
def test_tasks_that_articles_do_not_allow_are_left_out_with_a_sentence(passages, left, capsys):
    runtime.note.cache_clear()
    article = Article("a", "A", passages, 1, ())
    assert allowed(["ict", "bfs", "wlp"], build([article])[0]) == left
    assert capsys.readouterr().err.count("Pre-training goes without") == 3 - len(left)
    assert allowed(["ict", "bfs", "wlp"], build()[0]) == ["ict", "bfs", "wlp"]
    with pytest.raises(DataError, match="ict needs.*wlp needs"):
        allowed(["ict", "wlp"], build([replace(article, passages=("s",))])[0])


def test_a_task_of_ones_own_that_finds_no_pair_is_left_out_too(monkeypatch, capsys):
    class Empty(InverseCloze):
        def __init__(self, structure):
            super().__init__(structure)
            self.queries = self.pairs = 0

    monkeypatch.setitem(TASKS._things, "mine", Empty)
    runtime.note.cache_clear()
    corpus, tokenizer = build()
    assert allowed(["mine", "ict"], corpus) == ["ict"]
    assert "without mine" in capsys.readouterr().err
    with pytest.raises(DataError, match="mine finds no pair"):
        PretrainingPairs(corpus, ["ict", "mine"], tokenizer.sep)


@pytest.mark.parametrize("rows", [np.array([0.5]), np.array([0, 0]), [0], np.array([-1]), np.array([10**6])])
def test_a_task_of_ones_own_gives_rows(monkeypatch, rows):
    class Mine(InverseCloze):
        def draw(self, generator, count):
            return np.zeros(count, dtype=np.int64), rows

    monkeypatch.setitem(TASKS._things, "mine", Mine)
    corpus, tokenizer = build()
    with pytest.raises(SettingError, match=r"Mine.draw must give an array of rows from 0 to \d+, of shape \(1,\)"):
        PretrainingPairs(corpus, ["mine"], tokenizer.sep).mixed(np.random.default_rng(0), 1)
