"""Systems side by side on one question, what makes their scores, and questions on their way over a map; chapter 90."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from functools import cache
from html import escape
from itertools import pairwise, product
from typing import TYPE_CHECKING, Any, NamedTuple
from unicodedata import normalize

import numpy as np
import pandas as pd
from IPython.display import HTML

from retlib.data.collection import Collection, hash_position
from retlib.data.text import WORD, TokenTable, content_words, words
from retlib.data.tokenized import texts
from retlib.models.encoders import encode
from retlib.models.retriever import Retriever
from retlib.report import figures
from retlib.report.tables import as_page
from retlib.retrieval.runs import check_question, result_list
from retlib.systems.ranking import Ranker
from retlib.systems.system import System, Target, fit

if TYPE_CHECKING:
    from ipywidgets import Widget

LETTERS = 240  # of a document that are shown
# Columns of what `SearchDemo.first` returns.
FIRST = ["document", "system", "rank", "score", "question", "document as it is read"]
RELEVANT, NO_MATCH = "✓", "no match"
# Red, green and blue behind what raises a score, and what lowers it: seen on white and on black.
RAISES, LOWERS = "0, 158, 115", "213, 94, 0"


class Why(NamedTuple):
    """A document's score, and by how much it would be lower without each token of the question and of the document."""

    score: float = 0.0
    question: Sequence[tuple[str, float]] = ()
    document: Sequence[tuple[str, float]] = ()


class SearchDemo:
    """Systems that answer any question over the documents of one collection; they are trained when first asked."""

    def __init__(self, systems: Mapping[str, Ranker], target: Target, seed: int = 0) -> None:
        self.systems, self.target, self.seed, self.collection = systems, target, seed, target.test
        self.searcher = cache(lambda name: systems[name].searcher(target, seed))

    def questions(self, count: int) -> list[str]:
        """Return the texts of some test questions, always the same: the first in the order of a hash."""
        texts = self.collection.split("test")["text"]
        return texts[sorted(texts.index, key=hash_position)[:count]].tolist()

    def lists(self, question: str, depth: int, systems: Sequence[str] | None = None) -> pd.DataFrame:
        """Return the documents of each `system`; see `retlib.retrieval.runs.result_list`."""
        check_question(question)  # before a system is trained
        names = list(systems or self.systems)
        parts = [result_list(self.collection, question, depth, self.searcher(name)) for name in names]
        return pd.concat([part.assign(system=name) for name, part in zip(names, parts, strict=True)], ignore_index=True)

    def why(self, system: str, question: str, doc_id: str) -> Why:
        """Return what makes a document's score.

        A dual encoder is asked again without each token that it reads, of the question and of the document. Another
        system is asked without each word of the question; a word of the document counts as the question's.
        """
        question = normalize("NFC", question)
        ranker, row = self.systems[system], self.collection.documents.index.get_loc(doc_id)
        if isinstance(ranker, System):
            return _encoded_why(fit(ranker, self.target.trains, self.seed), self.collection, question, row)

        def score(text: Sequence[str]) -> float:
            query = pd.DataFrame({"text": [" ".join(text)]}, index=[""])
            scores, rows = self.searcher(system)(query, len(self.collection.documents))
            return float(scores[rows == row].sum()) if text else 0.0

        terms = words(question)
        whole = score(terms)
        losses = [(word, whole - score(terms[:place] + terms[place + 1 :])) for place, word in enumerate(terms)]
        read, loss_of = texts(self.collection).iloc[row].split(), dict(losses)
        return Why(whole, losses, [(word, sum(loss_of.get(each, 0.0) for each in words(word))) for word in read])

    def first(self, question: str, systems: Sequence[str]) -> pd.DataFrame:
        """Return what makes the scores of the document that each of these systems finds first, with each of them.

        The question, and the document as it is read, are HTML whose colours say what raises the score.
        """
        lists, rows = self.lists(question, len(self.collection.documents), systems), []
        ranks = lists.set_index(["system", "doc_id"])["rank"]
        for doc_id, system in product(lists["doc_id"][lists["rank"] == 1].unique(), systems):
            rank = ranks.get((system, doc_id))
            why, document = self.why(system, question, doc_id) if rank else Why(), self.collection.documents.loc[doc_id]
            title, place = document.get("title") or _beginning(document["text"]), str(rank) if rank else NO_MATCH
            rows.append((title, system, place, f"{why.score:.3g}", shaded(why.question), shaded(why.document)))
        return pd.DataFrame(rows, columns=FIRST)


def disputed(demo: SearchDemo, systems: Sequence[str], count: int) -> list[str]:
    """Return of the first 50 test questions those for which these systems find the most different documents first."""
    firsts = {question: demo.lists(question, 1, systems)["doc_id"].nunique() for question in demo.questions(50)}
    return sorted(firsts, key=firsts.get, reverse=True)[:count]


def _encoded_why(retriever: Retriever, collection: Collection, question: str, row: int) -> Why:
    # Of a dual encoder, in float32: a token of many is worth less than what bfloat16 rounds away.
    tables = retriever.tokenize([question]), retriever.reads(collection).block(np.array([row]))
    sides = retriever.model.queries, retriever.model.documents
    query, document = (encode(side, table)[0] for side, table in zip(sides, tables, strict=True))
    score, names = float(query @ document), retriever.tokenizer.tokens

    def losses(table: TokenTable, side: Any, other: np.ndarray) -> list[tuple[str, float]]:
        ids = table.row(0)
        without = TokenTable.from_rows(np.delete(ids, place) for place in range(len(ids) if len(ids) > 1 else 0))
        scores = encode(side, without) @ other if len(without) else [0.0]
        return [(names[token], score - float(each)) for token, each in zip(ids, scores, strict=True)]

    return Why(score, *map(losses, tables, sides, (document, query)))


def shaded(parts: Sequence[tuple[str, float]]) -> str:
    """Return HTML of tokens, the darker the more a score would lose without one; pieces of a word stand together."""
    most = max((abs(lost) for _, lost in parts), default=0.0) or 1.0
    pieces = []
    for token, lost in parts:
        colour = f"rgba({RAISES if lost > 0 else LOWERS}, {0.75 * abs(lost) / most:.2f})"
        inside = token.startswith("##") and len(token) > 2
        text = escape(token[2:] if inside else token)
        pieces.append(f'{"" if inside else " "}<span style="background: {colour}" title="{lost:+.3g}">{text}</span>')
    return "".join(pieces).strip()


def side_by_side(question: str, lists: pd.DataFrame, systems: Sequence[str]) -> HTML:
    """Return the question, and a column for each system: its documents, with words marked and relevant ones ticked.

    A system that found nothing has no row in `lists`, which `SearchDemo.lists` returns.
    """
    terms = content_words(question)
    cells = {(row.system, row.rank): _cell(row, terms) for row in lists.itertuples()}
    ranks = range(1, 1 + max(lists["rank"], default=1))
    table = {each: [cells.get((each, rank), NO_MATCH if rank == 1 else "") for rank in ranks] for each in systems}
    page = _left(as_page(pd.DataFrame({"rank": ranks, **table}), markup=list(systems)))
    return HTML(f"<p class='mathjax_ignore'><strong>{escape(question)}</strong></p>{page}")


def explained(first: pd.DataFrame) -> HTML:
    """Return the table of `SearchDemo.first`, for a page."""
    return HTML(_left(as_page(first, markup=["question", "document as it is read"])))


def _left(page: HTML) -> str:
    # A table whose cells begin at the left and break long names, where no style sheet of ours is: in JupyterLab.
    style = 'style="text-align: left; overflow-wrap: anywhere; white-space: normal"'
    return page.data.replace("<td>", f"<td {style}>").replace("<th>", '<th style="text-align: left">')


def _cell(row: Any, terms: Set[str]) -> str:
    title = f"<strong>{escape(row.title)}</strong> " if row.title else ""
    return f"{RELEVANT + ' ' if row.relevant else ''}{title}{marked(_beginning(row.text), terms)}"


def _beginning(text: str) -> str:
    return text if len(text) <= LETTERS else text[:LETTERS].rsplit(maxsplit=1)[0] + " …"


def marked(text: str, terms: Set[str]) -> str:
    """Return HTML of a text in which some words, lowercase, are marked; its own markup is shown as text."""
    bounds = [0, *(place for match in WORD.finditer(text) for place in match.span()), len(text)]
    pieces = (text[start:end] for start, end in pairwise(bounds))
    return "".join(f"<mark>{escape(piece)}</mark>" if terms & {*words(piece)} else escape(piece) for piece in pieces)


def explorer(demo: SearchDemo, depth: int, chosen: Sequence[str]) -> Widget:
    """Return, for JupyterLab, a field for a question, a choice of systems, their lists side by side, and two scores."""
    from ipywidgets import HTML as Page
    from ipywidgets import Dropdown, HBox, SelectMultiple, Text, VBox

    names = list(demo.systems)
    field = Text(demo.questions(1)[0], description="question", continuous_update=False, layout={"width": "40em"})
    several = SelectMultiple(options=names, value=tuple(chosen), description="systems")
    pair = [Dropdown(options=names, value=each, description="why") for each in (chosen[0], chosen[-1])]
    lists, reasons = Page(), Page()

    def show(*_: object) -> None:
        question, systems, two = field.value, several.value, list(dict.fromkeys(each.value for each in pair))
        lists.value = "Ask a question of one word at least, and choose a system."
        if words(question) and systems:
            lists.value = side_by_side(question, demo.lists(question, depth, systems), systems).data
        first = demo.first(question, two) if words(question) else ()
        reasons.value = explained(first).data if len(first) else ""

    for widget in (field, several, *pair):
        widget.observe(show, "value")
    show()
    return VBox([HBox([field, several]), lists, HBox(pair), reasons])


def walk(corpus: pd.DataFrame) -> Widget:
    """Return, for JupyterLab, a slider over the steps of a training, which moves its questions over `whole_map`."""
    from ipywidgets import SelectionSlider, interactive

    steps = sorted(corpus["step"][corpus["what"] == "query"].unique())

    def show(step: int) -> None:
        figures.paths(corpus[corpus["step"] <= step])

    return interactive(show, step=SelectionSlider(options=steps, value=steps[-1], description="step"))


def agreement(lists: pd.DataFrame, rival: str) -> pd.Series:
    """Return the share of each other system's documents that a rival lists for the same question; none without it."""
    pairs, others = pd.MultiIndex.from_frame(lists[["question", "doc_id"]]), lists["system"] != rival
    others &= not others.all()
    in_both = pd.Series(pairs.isin(pairs[~others]), lists.index)
    return in_both[others].groupby(lists["system"][others], sort=False).mean()
