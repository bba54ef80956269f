"""Systems side by side on one question, and questions on their way over the map of the documents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from IPython.display import HTML

from retlib.core.errors import require, require_one_of
from retlib.data.collection import Collection, hash_position
from retlib.data.text import WORD, words
from retlib.report import ltre_figures
from retlib.report.tables import as_page
from retlib.retrieval.lexical import BM25
from retlib.studies import ltre_maps
from retlib.studies.ltre_study import NEGATIVES, WARM, Study
from retlib.systems import ltre
from retlib.systems.ranking import Ranking

if TYPE_CHECKING:
    from ipywidgets import Widget

LEXICAL = "BM25"
SYSTEMS = (LEXICAL, WARM, *NEGATIVES)
# Letters of a document that are shown.
LETTERS = 240
RELEVANT = "✓"


@dataclass(frozen=True, eq=False)
class Desk:
    """Systems that answer any question over the documents of one collection.

    Parameters
    ----------
    study : Study
        Whose systems they are; those that are not trained yet are trained when they are first asked.
    collection : Collection
        One that the study is tested on.
    systems : sequence of str
        Of `SYSTEMS`.
    seed : int
    """

    study: Study
    collection: Collection
    systems: Sequence[str]
    seed: int = 0
    _made: dict[str, Callable[[str, int], np.ndarray]] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        for system in self.systems:
            require_one_of("system", system, SYSTEMS)

    @property
    def _ranking(self) -> Ranking:
        return self.study.part(self.collection)

    def _answering(self, system: str) -> Callable[[str, int], np.ndarray]:
        """What answers for a system: made when it is first asked."""
        if system not in self._made:
            self._made[system] = self._by_words() if system == LEXICAL else self._by_vectors(system)
        return self._made[system]

    def _by_words(self) -> Callable[[str, int], np.ndarray]:
        bm25 = BM25().fit(self._ranking.texts.tolist())
        return lambda text, k: bm25.search([text], k)[1][0]

    def _by_vectors(self, system: str) -> Callable[[str, int], np.ndarray]:
        return ltre.answering(self.study.retriever(system, self.seed), self._ranking)

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
            rows = self._answering(system)(question, depth)
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
        As `Desk.lists` returns it.
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


def explorer(desk: Desk, depth: int = 5) -> Widget:
    """For JupyterLab: a field for a question, a choice of systems, and their lists side by side."""
    from ipywidgets import HTML as Page
    from ipywidgets import HBox, SelectMultiple, Text, VBox

    field = Text(desk.questions(1)[0], description="question", continuous_update=False, layout={"width": "40em"})
    chosen = SelectMultiple(options=desk.systems, value=tuple(desk.systems), description="systems")
    page = Page()

    def show(*_: object) -> None:
        if not words(field.value) or not chosen.value:
            page.value = "Ask a question of one word at least, and choose a system."
            return
        lists = desk.lists(field.value, depth, chosen.value)
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
        As `retlib.studies.ltre_maps.corpus` returns it.
    """
    from ipywidgets import SelectionSlider, interactive

    documents, queries, relevant = ltre_maps.layers(corpus)
    steps = sorted(queries["step"].unique())

    def show(step: int) -> None:
        ltre_figures.paths(documents, queries[queries["step"] <= step], relevant)

    return interactive(show, step=SelectionSlider(options=steps, value=steps[-1], description="step"))


def agreement(lists: pd.DataFrame) -> pd.Series:
    """The share of each system's documents that BM25 lists for the same question; index system, without BM25.

    Parameters
    ----------
    lists : DataFrame
        As `Desk.lists` returns it, of several questions, with a column `question`. Empty where BM25 is not asked.
    """
    found = pd.MultiIndex.from_frame(lists[["question", "doc_id"]])
    is_theirs = (lists["system"] == LEXICAL).to_numpy()
    if not is_theirs.any():
        return pd.Series(dtype=float)
    same = pd.Series(found.isin(found[is_theirs]), lists.index)[~is_theirs]
    return same.groupby(lists["system"][~is_theirs], sort=False).mean()
