"""Systems side by side on one question, what makes their scores, and questions on their way over a map."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from html import escape
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple
from unicodedata import normalize

import numpy as np
import pandas as pd
from IPython.display import HTML

from retlib.data.collection import Collection
from retlib.data.splits import hash_position
from retlib.data.text import WORD, TokenTable, content_words, words
from retlib.data.tokenized import texts
from retlib.models.encoders import encode
from retlib.models.retriever import Retriever
from retlib.report import training_figures
from retlib.report.tables import as_page
from retlib.retrieval.runs import Search, check_question, result_list
from retlib.systems.ranking import Ranker
from retlib.systems.system import System, Target, fit

if TYPE_CHECKING:
    from ipywidgets import Widget

# Letters of a document that are shown.
LETTERS = 240
# Columns of what `SearchDemo.first` returns.
FIRST = ("document", "system", "rank", "score", "question", "document as it is read")
RELEVANT, NO_MATCH = "✓", "no match"
# Red, green and blue behind what raises a score, and what lowers it: seen on white and on black.
RAISES, LOWERS = "0, 158, 115", "213, 94, 0"


class Why(NamedTuple):
    """A document's score, and by how much it would be lower without each token of the question and of the document."""

    score: float
    question: list[tuple[str, float]]
    document: list[tuple[str, float]]


@dataclass(frozen=True, eq=False)
class SearchDemo:
    """Systems that answer any question over the documents of one collection; they are trained when first asked."""

    systems: Mapping[str, Ranker]
    target: Target
    seed: int = 0
    _made: dict[int, Search] = field(default_factory=dict, init=False, repr=False)

    @property
    def collection(self) -> Collection:
        return self.target.test

    def _answering(self, ranks: Ranker) -> Search:
        """What answers for a system, made when it is first asked."""
        if id(ranks) not in self._made:
            self._made[id(ranks)] = ranks.searcher(self.target, self.seed)
        return self._made[id(ranks)]

    def questions(self, count: int) -> list[str]:
        """The texts of some test questions, the same whenever asked: the first in the order of a hash."""
        texts = self.collection.split("test")["text"]
        return texts[sorted(texts.index, key=hash_position)[:count]].tolist()

    def lists(self, question: str, depth: int, systems: Sequence[str] | None = None) -> pd.DataFrame:
        """Return the documents of each `system`; see `retlib.retrieval.runs.result_list`."""
        check_question(question)  # before a system is trained
        answers = {name: self._answering(self.systems[name]) for name in systems or self.systems}
        parts = {name: result_list(self.collection, question, depth, each) for name, each in answers.items()}
        return pd.concat([part.assign(system=name) for name, part in parts.items()], ignore_index=True)

    def why(self, system: str, question: str, doc_id: str) -> Why:
        """What makes a document's score.

        A dual encoder is asked again without each token that it reads, of the question and of the document. Another
        system is asked without each word of the question; a word of the document counts as the question's.
        """
        question = normalize("NFC", question)
        ranks, row = self.systems[system], self.collection.documents.index.get_loc(doc_id)
        if isinstance(ranks, System):
            return _encoded_why(fit(ranks, self.target.trains, self.seed), self.collection, question, row)
        asked, answer = words(question), self._answering(ranks)

        def score(text: Sequence[str]) -> float:
            asked = pd.DataFrame({"text": [" ".join(text)]}, index=[""])
            scores, rows = answer(asked, len(self.collection.documents))
            return float(scores[rows == row].sum()) if text else 0.0

        whole = score(asked)
        lost = [(word, whole - score(asked[:place] + asked[place + 1 :])) for place, word in enumerate(asked)]
        read = texts(self.collection).iloc[row].split()
        return Why(whole, lost, [(word, sum(dict(lost).get(each, 0.0) for each in words(word))) for word in read])

    def first(self, question: str, systems: Sequence[str]) -> pd.DataFrame:
        """Return what makes the scores of the document that each of these systems finds first, with each of them.

        The question, and the document as it is read, are HTML whose colours say what raises the score.
        """
        depth, rows = len(self.collection.documents), []
        lists = self.lists(question, depth, systems).set_index(["system", "doc_id"])
        for doc_id in dict.fromkeys(lists.index[lists["rank"] == 1].get_level_values("doc_id")):
            for system in systems:
                ranked = (system, doc_id) in lists.index
                why = self.why(system, question, doc_id) if ranked else Why(0.0, [], [])
                found = self.collection.documents.loc[doc_id]
                rows.append({
                    "document": found.get("title") or _beginning(found["text"]),
                    "system": system,
                    "rank": str(lists.loc[(system, doc_id), "rank"]) if ranked else NO_MATCH,
                    "score": f"{why.score:.3g}",
                    "question": shaded(why.question),
                    "document as it is read": shaded(why.document),
                })  # fmt: skip
        return pd.DataFrame(rows, columns=[*FIRST])


def disputed(demo: SearchDemo, systems: Sequence[str], count: int) -> list[str]:
    """Of the first 50 test questions those for which these systems find the most different documents first."""
    asked = demo.questions(50)
    firsts = {question: demo.lists(question, 1, systems)["doc_id"].nunique() for question in asked}
    return sorted(asked, key=firsts.__getitem__, reverse=True)[:count]


def _encoded_why(retriever: Retriever, collection: Collection, question: str, row: int) -> Why:
    """Of a dual encoder, in float32: a token of many is worth less than what bfloat16 rounds away."""
    asked, read = retriever.tokenize([question]), retriever.reads(collection).block(np.array([row]))
    query, document = encode(retriever.model.queries, asked)[0], encode(retriever.model.documents, read)[0]
    score, names = float(query @ document), retriever.tokenizer.tokens

    def lost(table: TokenTable, side: Any, other: np.ndarray) -> list[tuple[str, float]]:
        ids = table.row(0)
        without = TokenTable.from_rows(np.delete(ids, place) for place in range(len(ids) if len(ids) > 1 else 0))
        scores = encode(side, without) @ other if len(without) else [0.0]
        return [(names[token], score - float(each)) for token, each in zip(ids, scores, strict=True)]

    return Why(score, lost(asked, retriever.model.queries, document), lost(read, retriever.model.documents, query))


def shaded(parts: Sequence[tuple[str, float]]) -> str:
    """HTML of tokens, the darker the more a score would lose without one; pieces of a word stand together."""
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
    asked = content_words(question)
    cells = {(row.system, row.rank): _cell(row, asked) for row in lists.itertuples()}
    ranks = range(1, 1 + max(lists["rank"], default=1))
    table = {each: [cells.get((each, rank), NO_MATCH if rank == 1 else "") for rank in ranks] for each in systems}
    page = _left(as_page(pd.DataFrame({"rank": ranks, **table}), markup=list(systems)))
    return HTML(f"<p class='mathjax_ignore'><strong>{escape(question)}</strong></p>{page}")


def explained(first: pd.DataFrame) -> HTML:
    """The table that `SearchDemo.first` returns, for a page."""
    return HTML(_left(as_page(first, markup=["question", "document as it is read"])))


def _left(page: HTML) -> str:
    """A table whose cells begin at the left and break long names, where no style sheet of ours is: in JupyterLab."""
    style = 'style="text-align: left; overflow-wrap: anywhere; white-space: normal"'
    return page.data.replace("<td>", f"<td {style}>").replace("<th>", '<th style="text-align: left">')


def _cell(row: object, asked: Set[str]) -> str:
    title = f"<strong>{escape(row.title)}</strong> " if row.title else ""
    return f"{RELEVANT + ' ' if row.relevant else ''}{title}{marked(_beginning(row.text), asked)}"


def _beginning(text: str) -> str:
    return text if len(text) <= LETTERS else text[:LETTERS].rsplit(maxsplit=1)[0] + " …"


def marked(text: str, asked: Set[str]) -> str:
    """HTML of a text in which some words, lowercase, are marked; its own markup is shown as text."""
    bounds = [0, *(place for match in WORD.finditer(text) for place in match.span()), len(text)]
    pieces = (text[start:end] for start, end in pairwise(bounds))
    return "".join(f"<mark>{escape(piece)}</mark>" if asked & {*words(piece)} else escape(piece) for piece in pieces)


def explorer(demo: SearchDemo, depth: int, chosen: Sequence[str]) -> Widget:
    """Return, for JupyterLab, a field for a question, a choice of systems, their lists side by side, and two scores."""
    from ipywidgets import HTML as Page
    from ipywidgets import Dropdown, HBox, SelectMultiple, Text, VBox

    names = list(demo.systems)
    field = Text(demo.questions(1)[0], description="question", continuous_update=False, layout={"width": "40em"})
    several = SelectMultiple(options=names, value=tuple(chosen), description="systems")
    pair = [Dropdown(options=names, value=each, description="why") for each in (chosen[0], chosen[-1])]
    lists, reasons = Page(), Page()

    def search(*_: object) -> None:
        if not words(field.value) or not several.value:
            lists.value = "Ask a question of one word at least, and choose a system."
            return
        found = demo.lists(field.value, depth, several.value)
        lists.value = side_by_side(field.value, found, several.value).data

    def explain(*_: object) -> None:
        first = demo.first(field.value, list(dict.fromkeys(each.value for each in pair))) if words(field.value) else []
        reasons.value = explained(first).data if len(first) else ""

    for watched, shows in ((field, search), (field, explain), (several, search), *((each, explain) for each in pair)):
        watched.observe(shows, "value")
    search()
    explain()
    return VBox([HBox([field, several]), lists, HBox(pair), reasons])


def walk(corpus: pd.DataFrame) -> Widget:
    """Return, for JupyterLab, a slider over the steps of a training, which moves its questions over `whole_map`."""
    from ipywidgets import SelectionSlider, interactive

    steps = sorted(corpus["step"][corpus["what"] == "query"].unique())

    def show(step: int) -> None:
        training_figures.paths(corpus[corpus["step"] <= step])

    return interactive(show, step=SelectionSlider(options=steps, value=steps[-1], description="step"))


def agreement(lists: pd.DataFrame, rival: str) -> pd.Series:
    """Return the share of each other system's documents that a rival lists for the same question; none without it."""
    found = pd.MultiIndex.from_frame(lists[["question", "doc_id"]])
    is_theirs = (lists["system"] == rival).to_numpy()
    if not is_theirs.any():
        return pd.Series(dtype=float)
    same = pd.Series(found.isin(found[is_theirs]), lists.index)[~is_theirs]
    return same.groupby(lists["system"][~is_theirs], sort=False).mean()
