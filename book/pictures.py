"""Draws the pictures that the pages show: `python book/pictures.py` writes them into `_static/pictures`.

Each function below draws one, under its own name. They are schemes of methods, in which no number was measured; the
last is the README's, of the published verdicts.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle, FancyArrowPatch, FancyBboxPatch, Rectangle

from retlib.report.figures import tiles
from retlib.report.ledger import ledger

FOLDER = Path(__file__).parent / "_static" / "pictures"
# Roles, in the colours of the book's figures.
QUERY, RELEVANT, NEGATIVE, UNUSED, INK = "#0072B2", "#009E73", "#D55E00", "#DDDDDD", "#222222"
# Text stays text, so that it can be searched and read aloud; the same picture is the same file.
LOOKS = {"svg.fonttype": "none", "svg.hashsalt": "retlib", "font.family": "sans-serif", "text.color": INK}


def canvas(width: float, height: float, panels: int = 1) -> tuple[Figure, list[Axes]]:
    """A figure of panels side by side, each as many units as it has tenths of an inch; white, on dark pages too."""
    figure = Figure(figsize=(width * panels / 10, height / 10), facecolor="white")
    axes = []
    for place in range(panels):
        axis = figure.add_axes((place / panels, 0, 1 / panels, 1))
        axis.set(xlim=(0, width), ylim=(height, 0), aspect="equal")
        axis.axis("off")
        axes.append(axis)
    return figure, axes


def say(axis: Axes, x: float, y: float, text: str, size: float = 9, **options: object) -> None:
    """Text in the middle of a place."""
    axis.text(x, y, text, fontsize=size, **{"ha": "center", "va": "center"} | options)


def box(axis: Axes, x: float, y: float, width: float, height: float, text: str = "", colour: str = INK) -> None:
    """A rounded box with its top left corner at (x, y)."""
    look = {"boxstyle": "round,pad=0,rounding_size=0.8", "ec": colour, "fc": "white", "lw": 1.2}
    axis.add_patch(FancyBboxPatch((x, y), width, height, **look))
    say(axis, x + width / 2, y + height / 2, text, color=colour)


def arrow(axis: Axes, start: tuple, end: tuple, colour: str = INK, **more: object) -> None:
    """An arrow from one place to another."""
    axis.add_patch(FancyArrowPatch(start, end, arrowstyle="-|>", mutation_scale=9, color=colour, lw=1.2, **more))


def cells(axis: Axes, x: float, y: float, colours: np.ndarray, size: float = 3) -> None:
    """A matrix of coloured cells with its top left corner at (x, y)."""
    for (row, column), colour in np.ndenumerate(colours):
        place = (x + column * size, y + row * size)
        axis.add_patch(Rectangle(place, size * 0.9, size * 0.9, fc=colour, ec="none"))


def lines(axis: Axes, x: float, y: float, width: float, colours: Sequence[str]) -> None:
    """Lines of a text, each in its colour."""
    for row, colour in enumerate(colours):
        length = width * (0.72 if row == len(colours) - 1 else 1)
        axis.add_patch(Rectangle((x, y + 1.5 * row), length, 0.75, fc=colour, ec="none"))


def encoders() -> Figure:
    """Two towers beside a cross-encoder."""
    figure, (two, one) = canvas(36, 25, 2)
    for place, (text, colour) in enumerate((("question", QUERY), ("document", RELEVANT))):
        x = 4 + 16 * place
        box(two, x, 20, 12, 3.4, text, colour)
        arrow(two, (x + 6, 20), (x + 6, 17))
        box(two, x, 11.5, 12, 5.5, "encoder")
        arrow(two, (x + 6, 11.5), (x + 6, 9.6))
        cells(two, x + 1.5, 7.6, np.full((1, 5), colour), 1.8)
        arrow(two, (x + 6, 7.4), (18 + (place - 0.5) * 4, 5))
    say(two, 18, 3.6, "inner product")
    say(two, 18, 1.2, "Dual encoder: documents are encoded once", weight="bold")
    box(one, 5, 20, 26, 3.4)
    say(one, 12, 21.7, "question", color=QUERY)
    say(one, 24, 21.7, "document", color=RELEVANT)
    arrow(one, (18, 20), (18, 17))
    box(one, 5, 11.5, 26, 5.5, "encoder: every token sees every other")
    arrow(one, (18, 11.5), (18, 5))
    say(one, 18, 3.6, "score")
    say(one, 18, 1.2, "Cross-encoder: one pass for each pair", weight="bold")
    return figure


def losses() -> Figure:
    """What each loss takes of the scores of a batch."""
    size = 5
    figure, axes = canvas(23, 29, 4)
    relevant = np.eye(size, dtype=bool)
    batch = np.where(relevant, RELEVANT, NEGATIVE)
    labelled = np.array([[RELEVANT], [NEGATIVE], [RELEVANT], [RELEVANT], [NEGATIVE]])
    hardest = np.where(relevant, RELEVANT, UNUSED).astype("<U7")
    hardest[np.arange(size), [2, 3, 0, 1, 1]] = NEGATIVE
    panels = (
        ("pairwise cross-entropy", labelled, "each pair by itself:\nis it one?"),
        ("in-batch cross-entropy", batch, "each cell by itself:\nis it a pair?"),
        ("in-batch softmax", batch, "each row:\nwhich is the one?"),
        ("in-batch triplet", hardest, "each row: the one above\nthe hardest, by a margin"),
    )
    for axis, (title, colours, text) in zip(axes, panels, strict=True):
        x = 5 if colours.shape[1] > 1 else 10
        say(axis, 12.5, 1.5, title, weight="bold")
        say(axis, 12.5, 4.2, "documents" if colours.shape[1] > 1 else "its document", 8)
        cells(axis, x, 5.5, colours)
        say(axis, x - 1.4, 13, "questions", 8, rotation=90)
        if title.endswith("softmax"):
            for row in range(size):
                axis.add_patch(Rectangle((x - 0.3, 5.2 + 3 * row), 15.3, 3.2, fill=False, ec=INK, lw=1))
        say(axis, 12.5, 24.5, text, 8.5)
    return figure


def tasks() -> Figure:
    """Where a pre-training task takes its query and its document."""
    figure, axes = canvas(31, 33, 3)
    titles = ("ICT", "BFS", "WLP")
    texts = (
        "a sentence of a passage;\nthe passage without it",
        "a sentence of the first section;\nanother passage of the page",
        "a sentence of the first section;\na passage of a page that links here",
    )

    def page(axis: Axes, x: float, width: float, passages: Sequence[Sequence[str]]) -> None:
        box(axis, x, 4, width, 22)
        axis.add_patch(Rectangle((x + 1, 5.2), width * 0.4, 1, fc=INK, ec="none"))
        for place, colours in enumerate(passages):
            lines(axis, x + 1.3, 7.8 + 6.2 * place, width - 2.6, colours)

    grey = [UNUSED] * 3
    for axis, title, text in zip(axes, titles, texts, strict=True):
        say(axis, 15.5, 1.7, title, 11, weight="bold")
        say(axis, 15.5, 29.2, text, 8.5)
    page(axes[0], 8, 15, (grey, [RELEVANT, QUERY, RELEVANT], grey))
    page(axes[1], 8, 15, ([UNUSED, QUERY, UNUSED], grey, [RELEVANT] * 3))
    page(axes[2], 2, 11.5, ([UNUSED, QUERY, UNUSED], grey, grey))
    page(axes[2], 17.5, 11.5, (grey, [RELEVANT] * 3, grey))
    arrow(axes[2], (18.6, 15.6), (13.6, 5.6), connectionstyle="arc3,rad=0.2", linestyle="--")
    say(axes[2], 15.5, 13.2, "link", 8)
    return figure


def generation() -> Figure:
    """From a passage to a retriever that never saw a label of its collection."""
    figure, (axis,) = canvas(82, 19)
    box(axis, 1, 5.5, 14, 7, "passages\nof the target", RELEVANT)
    arrow(axis, (15, 9), (20, 9))
    box(axis, 20, 5.5, 14, 7, "generator")
    say(axis, 27, 1.8, "learned from labels\nof another collection", 8)
    arrow(axis, (34, 9), (39, 9))
    box(axis, 39, 5.5, 14, 7, "synthetic\nquestions", QUERY)
    arrow(axis, (53, 9), (58, 9))
    box(axis, 58, 5.5, 14, 7, "dual encoder")
    arrow(axis, (72, 9), (76, 9))
    say(axis, 79, 9, "search")
    arrow(axis, (12, 12.5), (62, 12.5), RELEVANT, connectionstyle="arc3,rad=0.13")
    say(axis, 37, 17.5, "the passage that a question was written for is its relevant document", 8, color=RELEVANT)
    arrow(axis, (46, 5.5), (46, 3.2), linestyle=":")
    say(axis, 52, 1.8, "round trip: does BM25 find that passage first?", 8)
    return figure


def negatives() -> Figure:
    """Where the negatives of a question come from, on a map of documents."""
    generator = np.random.default_rng(3)
    documents = generator.uniform((2, 4), (20, 24), (46, 2))
    query, relevant = np.array([11.0, 15.5]), np.array([14.0, 13.6])
    documents = documents[np.linalg.norm(documents - relevant, axis=1) > 1.2]
    before = query + (3.4, 4.2)  # where the question was when ANCE last retrieved
    near, then = (np.argsort(np.linalg.norm(documents - place, axis=1)) for place in (query, before))
    apart = near[6:]
    chosen = {
        "random": generator.choice(apart, 4, replace=False),
        "BM25's list": np.append(near[[3, 7]], apart[[5, 12]]),
        "ANCE": then[:4],
        "LTRe": near[:4],
    }
    texts = (
        "any document: most\nare far already",
        "documents that share words,\nthe same ones all along",
        "retrieved some steps ago:\nthe question has moved since",
        "retrieved at this very step,\nfrom all documents",
    )
    figure, axes = canvas(22, 30, 4)
    for axis, (title, rows), text in zip(axes, chosen.items(), texts, strict=True):
        say(axis, 11, 1.5, title, 11, weight="bold")
        say(axis, 11, 27, text, 8.5)
        axis.plot(*documents.T, "o", ms=5.5, mew=0, color=UNUSED)
        axis.plot(*documents[rows].T, "o", ms=6.5, mew=0, color=NEGATIVE)
        if title == "ANCE":
            axis.add_patch(Circle(before, 0.7, fill=False, ec=QUERY, lw=1, ls="--"))
            arrow(axis, before, query + (0.5, 0.6), QUERY)
        axis.plot(*relevant, "D", ms=8, mew=0, color=RELEVANT)
        axis.plot(*query, "s", ms=9, mew=0, color=QUERY)
    return figure


def two_stages() -> Figure:
    """A first stage that finds, a second that reads."""
    figure, (axis,) = canvas(75, 20)
    box(axis, 1, 6, 12, 8, "question", QUERY)
    arrow(axis, (13, 10), (17, 10))
    box(axis, 17, 3, 16, 14, "first stage\n\nBM25 or vectors,\nover all documents")
    arrow(axis, (33, 10), (37, 10))
    lines(axis, 38, 4, 8, [UNUSED, RELEVANT, UNUSED, UNUSED, UNUSED, UNUSED, UNUSED, UNUSED])
    say(axis, 41.5, 17.6, "depth: 10 to 1000", 8)
    arrow(axis, (47, 10), (51, 10))
    box(axis, 51, 3, 14, 14, "second stage\n\nreads question\nand document\ntogether")
    arrow(axis, (65, 10), (68.5, 10))
    lines(axis, 69.3, 7.6, 4, [RELEVANT, UNUSED, UNUSED, UNUSED])
    return figure


def compression() -> Figure:
    """A vector becomes a few bytes."""
    figure, (axis,) = canvas(72, 18)
    generator = np.random.default_rng(0)
    shades = np.array([mpl.colors.to_hex(mpl.colormaps["Blues"](value)) for value in generator.uniform(0.2, 0.9, 12)])
    cells(axis, 2, 6, shades[None, :6], 2.6)
    say(axis, 10, 2.5, "a vector: 768 dimensions,\n3,072 bytes", 8)
    arrow(axis, (18.5, 7.2), (23, 7.2))
    say(axis, 20.7, 10.3, "OPQ\nturns it", 8)
    for part in range(3):
        cells(axis, 24 + 7 * part, 6, shades[None, 6 + 2 * part : 8 + 2 * part], 2.6)
    say(axis, 34, 2.5, "cut into parts", 8)
    arrow(axis, (45.5, 7.2), (50, 7.2))
    for part, code in enumerate((17, 203, 90)):
        box(axis, 51 + 5 * part, 5.6, 4.2, 3.2, str(code), QUERY)
    say(axis, 58.5, 2.5, "for each part, the number of the\nnearest of 256 centroids: one byte", 8)
    text = "A question is compared with the 256 centroids of each part once;\na document costs one look-up a byte."
    say(axis, 40, 14.8, text, 8.5)
    return figure


def verdicts() -> Figure:
    """A tile for each claim: the first page's figure of the published rows."""
    return tiles(ledger("laptop", "reference"))


PICTURES = (encoders, losses, tasks, generation, negatives, two_stages, compression, verdicts)


def main(folder: Path = FOLDER) -> None:
    """Write all pictures."""
    folder.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context(LOOKS):
        for picture in PICTURES:
            path = folder / f"{picture.__name__.replace('_', '-')}.svg"
            picture().savefig(path, metadata={"Date": None})
            print(path)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
