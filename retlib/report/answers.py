"""The answer on top of a chapter: a figure and sentences that a person wrote about the published rows (every chapter).

Values come from rows. A sentence names the verdicts and signs that it was written for, and is refused where a row no
longer bears it out: a test draws every answer.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
from IPython.display import HTML, Markdown, display

from retlib.core.errors import DataError, require
from retlib.evaluation import results
from retlib.evaluation.results import Results
from retlib.report import ledger
from retlib.report.papers import papers_table

PUBLISHED = "laptop"  # the profile of the published report

# Of one paper, whose claims are corrected together: those of all take seconds, on every page.
_verdicts = cache(lambda paper, profile: ledger.verdicts(paper, profile, "reference"))


class Answer:
    """The published `rows`, of a profile, that the answer of a chapter (a notebook) is about."""

    def __init__(self, chapter: str, profile: str = PUBLISHED) -> None:
        self.chapter, self.profile, self.rows = chapter, profile, results.load(chapter, profile, "reference")

    def rows_of(self, chapter: str, profile: str = "") -> Results:
        """Return another chapter's published rows."""
        other = results.load(chapter, profile or self.profile, "reference")
        require(other, f"no rows of {chapter} are published at profile {profile or self.profile!r}", DataError)
        return other

    def means(self, collection: str, measure: str) -> pd.Series:
        """Return each system's mean over test questions and seeds, in points of 100."""
        return 100 * self.rows.means(collection)[measure].dropna()

    @property
    def verdicts(self) -> pd.DataFrame:
        """The published verdicts on the claims of this chapter, for a forest."""
        papers = papers_table("claims").query("chapter == @self.chapter")["paper"].unique()
        return pd.concat(_verdicts(paper, self.profile) for paper in papers).query("chapter == @self.chapter")

    def says(self, text: str, verdicts: Mapping[str, str] = {}, relies: Mapping[str, bool] = {}) -> str:
        """Return a sentence, or a few, if the rows still bear it out; `DataError` where they do not.

        `verdicts` has the verdict on a claim's id that the text was written for. `relies` is what else it says, and
        whether the rows have it so: ``{"softmax is ahead": lead.effect > 0}``.
        """
        papers = papers_table("claims").query("id in @verdicts")["paper"].unique()
        now = {row.id: row.verdict for paper in papers for row in _verdicts(paper, self.profile).itertuples()}
        written = {f"{claim} {verdict}": now.get(claim) == verdict for claim, verdict in verdicts.items()}
        for what, so in (written | dict(relies)).items():
            require(bool(so), f"the answer of {self.chapter} relies on what the rows have not: {what}", DataError)
        return text

    def show(self, figure: plt.Figure | None, text: str, *written_for: Any, caption: str = "", **relied: Any) -> None:
        """Show the figure with its caption, and below it the text if the rows bear it out: the arguments of `says`."""
        text = self.says(text, *written_for, **relied)
        if figure is not None:
            display(figure)
            plt.close(figure)  # else the backend shows it again
        if caption:
            display(HTML(f'<p class="caption">{caption}</p>'))
        display(Markdown(text))
