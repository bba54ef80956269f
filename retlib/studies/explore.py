"""Systems side by side on one question, and questions on their way over the map of the documents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from IPython.display import HTML

from retlib.core.errors import require
from retlib.data.collection import Collection, hash_position
from retlib.data.text import WORD, words
from retlib.report import training_figures
from retlib.report.tables import as_page
from retlib.systems.compose import Ranks
from retlib.systems.ranking import Answer
from retlib.systems.system import Target

if TYPE_CHECKING:
    from ipywidgets import Widget

# Letters of a document that are shown.
LETTERS = 240
RELEVANT = "✓"


@dataclass(frozen=True, eq=False)
class SearchDemo:
    """Systems that answer any question over the documents of one collection.

    Parameters
    ----------
    systems : mapping of str to Ranks
        Those that are not trained yet are trained when they are first asked.
    target : Target
    seed : int
    """

    systems: Mapping[str, Ranks]
    target: Target
    seed: int = 0
    _made: dict[str, Answer] = field(default_factory=dict, init=False, repr=False)

    @property
    def collection(self) -> Collection:
        """What is searched."""
        return self.target.test

    def _answering(self, system: str) -> Answer:
        """What answers for a system: made when it is first asked."""
        if system not in self._made:
            self._made[system] = self.systems[system].answer(self.target, self.seed)
        return self._made[system]

    def questions(self, count: int) -> list[str]:
        """The texts of some test questions, the same whenever asked: the first in the order of a hash."""
        texts = self.collection.split("test")["text"]
        return texts[sorted(texts.index, key=hash_position)[:count]].tolist()

    def lists(self, question: str, depth: int, systems: Sequence[str] | None = None) -> pd.DataFrame:
        """What each system finds.

        Parameters
        ----------
        question : str
            Any; of one that the collection has, the relevant documents are known.
        depth : int
            Documents of each system.
        systems : sequence of str, optional
            Those that are asked, at least one; all unless given.

        Returns
        -------
        DataFrame
            Columns `system`, `rank` (from 1), `doc_id`, `title` ("" where there is none), `text` and `relevant`.
            A system that finds fewer documents has fewer rows.
        """
        require(words(question) != [], f"a question needs a word; {question!r} has none")
        require(depth >= 1, f"depth = {depth}: at least 1 is needed")
        documents, relevant = self.collection.documents, self._relevant(question)
        parts = []
        for system in systems or self.systems:
            _, rows = self._answering(system)(question, depth)
            found = documents.iloc[rows[rows >= 0]]
            titles = found["title"] if "title" in found else pd.Series("", found.index)
            parts.append(pd.DataFrame({
                "system": system, "rank": np.arange(1, len(found) + 1), "doc_id": found.index,
                "title": titles.to_numpy(), "text": found["text"].to_numpy(), "relevant": found.index.isin(relevant),
            }))  # fmt: skip
        return pd.concat(parts, ignore_index=True)

    def _relevant(self, question: str) -> set[str]:
        queries, qrels = self.collection.queries, self.collection.qrels
        same = qrels["query_id"].isin(queries.index[queries["text"] == question])
        return set(qrels["doc_id"][same & (qrels["relevance"] > 0)])


def side_by_side(question: str, lists: pd.DataFrame) -> HTML:
    """The question, and a column for each system: its documents, with the words marked and relevant ones ticked.

    Parameters
    ----------
    question : str
    lists : DataFrame
        As `SearchDemo.lists` returns it.
    """
    asked = set(words(question))
    cells = lists.assign(cell=[_cell(row, asked) for row in lists.itertuples()])
    table = cells.pivot_table(index="rank", columns="system", values="cell", aggfunc="first", sort=False).fillna("")
    systems = [system for system in dict.fromkeys(lists["system"]) if system in table]
    page = as_page(table[systems].rename_axis(columns=None).reset_index(), markup=systems)
    return HTML(f"<p><strong>{escape(question)}</strong></p>{page.data}")


def _cell(row: object, asked: set[str]) -> str:
    title = f"<strong>{escape(row.title)}</strong> " if row.title else ""
    return f"{RELEVANT + ' ' if row.relevant else ''}{title}{marked(_beginning(row.text), asked)}"


def _beginning(text: str) -> str:
    return text if len(text) <= LETTERS else text[:LETTERS].rsplit(maxsplit=1)[0] + " …"


def marked(text: str, asked: set[str]) -> str:
    """HTML of a text in which some words, lowercase, are marked; its own markup is shown as text."""
    bounds = [0, *(place for match in WORD.finditer(text) for place in match.span()), len(text)]
    pieces = (text[start:end] for start, end in pairwise(bounds))
    return "".join(f"<mark>{escape(piece)}</mark>" if asked & set(words(piece)) else escape(piece) for piece in pieces)


def explorer(demo: SearchDemo, depth: int = 5) -> Widget:
    """For JupyterLab: a field for a question, a choice of systems, and their lists side by side."""
    from ipywidgets import HTML as Page
    from ipywidgets import HBox, SelectMultiple, Text, VBox

    field = Text(demo.questions(1)[0], description="question", continuous_update=False, layout={"width": "40em"})
    chosen = SelectMultiple(options=list(demo.systems), value=tuple(demo.systems), description="systems")
    page = Page()

    def show(*_: object) -> None:
        if not words(field.value) or not chosen.value:
            page.value = "Ask a question of one word at least, and choose a system."
            return
        lists = demo.lists(field.value, depth, chosen.value)
        page.value = side_by_side(field.value, lists).data if len(lists) else "Nothing was found."

    field.observe(show, "value")
    chosen.observe(show, "value")
    show()
    return VBox([HBox([field, chosen]), page])


def walk(corpus: pd.DataFrame) -> Widget:
    """For JupyterLab: a slider over the steps of a training, which moves its questions over the map.

    Parameters
    ----------
    corpus : DataFrame
        As `retlib.studies.part4.whole_map` returns it.
    """
    from ipywidgets import SelectionSlider, interactive

    steps = sorted(corpus["step"][corpus["what"] == "query"].unique())

    def show(step: int) -> None:
        training_figures.paths(corpus[corpus["step"] <= step])

    return interactive(show, step=SelectionSlider(options=steps, value=steps[-1], description="step"))


def agreement(lists: pd.DataFrame, rival: str) -> pd.Series:
    """The share of each system's documents that a rival lists for the same question; index system, without the rival.

    Parameters
    ----------
    lists : DataFrame
        As `SearchDemo.lists` returns it, of several questions, with a column `question`. Empty where the rival is not
        asked.
    """
    found = pd.MultiIndex.from_frame(lists[["question", "doc_id"]])
    is_theirs = (lists["system"] == rival).to_numpy()
    if not is_theirs.any():
        return pd.Series(dtype=float)
    same = pd.Series(found.isin(found[is_theirs]), lists.index)[~is_theirs]
    return same.groupby(lists["system"][~is_theirs], sort=False).mean()
