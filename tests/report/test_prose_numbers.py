"""The numbers that `book/at-a-glance.md` types are those of the published rows."""

import re

import pytest

from retlib.core import notebook_files, runtime
from retlib.evaluation import results

PAGE = (runtime.root() / "book" / "at-a-glance.md").read_text()
PASSAGES = ("squad-passages", "natural-questions-passages")


def over(chapter, measure, system, base, *collections):
    """Return where each number stands: collection, measure, and a chapter and a system for both sides."""
    minuend, subtrahend = ((each if isinstance(each, tuple) else (chapter, each)) for each in (system, base))
    return [(collection, measure, minuend, subtrahend) for collection in collections]


def negatives(system, base="Pre-trained"):
    return over("42_first_stage", "RR@10", system, base, *PASSAGES)


def loss(system):
    return over("12_dual_encoder_losses", "AP@100", system, "untrained", "quora")


def task(system, share="0.01"):
    return over("22_reqa", "R@1", system, "Embeddings", f"natural-questions-{share}")


def chain(system, base):
    return over("51_one_leaderboard", "RR@10", system, base, PASSAGES[1])


GENERATED = "ICT+BFS+WLP > GQ"
# What a line of the page begins with, or a paragraph, to the numbers in it, in order.
TYPED = {
    "| `in-batch`": negatives("In-batch"),
    "| `hardest-in-batch`": negatives("NCE Neg"),
    "| `random`": negatives("Rand Neg"),
    "| `bm25`": negatives("BM25 Neg"),
    "| `bm25+random`": negatives("BM25 + Rand Neg"),
    "| `ann`": negatives("ANCE"),
    "| `retrieved`": negatives("LTRe (BM25 Neg)"),
    "Points of RR@10 over": negatives("LTRe (In-batch)", "In-batch"),
    "| `softmax`": loss("in_batch_softmax"),
    "| `cross_entropy`": loss("in_batch_cross_entropy"),
    "| `triplet`": loss("in_batch_triplet"),
    "Points over the untrained": loss("pairwise_cross_entropy"),
    '| `Pretraining(("ict"': task(("23_ablation", "1: shallow, ICT")),
    '| `Pretraining(("bfs"': task(("23_ablation", "2: shallow, BFS")),
    '| `Pretraining(("wlp"': task(("23_ablation", "3: shallow, WLP")),
    "| `Generated(": chain(GENERATED, "ICT+BFS+WLP"),
    "Pre-training: points": [
        *task("Embeddings, ICT+BFS+WLP"),
        *task("Embeddings, ICT+BFS+WLP", "0.8"),
        *chain(f"{GENERATED} > labels", "ICT+BFS+WLP > labels"),
    ],
    "The first five are names": over("43_two_stage", "RR@10", "late interaction", "LTRe", PASSAGES[1]),
}


def mean(chapter, system, collection, measure):
    rows = results.load(chapter, "laptop", "reference").lines(system, collection)
    return 100 * rows[(rows["measure"] == measure) & (rows["split"] == "test")]["value"].mean()


def worth(rows):
    """What stands in each place: by how much one mean is above another, or a mean alone."""
    points = [(mean(*one, *on), other and mean(*other, *on)) for *on, one, other in rows]
    return [f"{a:.1f}" if b is None else f"{a - b:+.1f}" for a, b in points]


@pytest.mark.parametrize("beginning", TYPED)
def test_points_at_a_glance_are_those_of_the_published_rows(beginning):
    (part,) = (part for part in re.split(r"\n(?=\|)|\n\n", PAGE) if part.startswith(beginning))
    assert re.findall(r"[+-]\d+\.\d", part) == worth(TYPED[beginning])


def test_no_points_at_a_glance_stand_elsewhere():
    assert len(re.findall(r"[+-]\d+\.\d", PAGE)) == sum(map(len, TYPED.values()))


# The title of a side note to the notebook that has it, and the numbers in it that rows have: in order, by `mean`.
NOTES = {
    "Is LTRe worth its seconds?": (
        "42_first_stage",
        over("42_first_stage", "RR@10", "LTRe (In-batch)", "In-batch, longer", *PASSAGES, "nfcorpus", "trec-dl-2019"),
        r"[+-]\d\.\d",
    ),
    "Two papers, two BM25s": (
        "22_reqa",
        [("squad-0.8-all", "R@1", ("22_reqa", name), None) for name in ("BM25", "BM25, stemmed")],
        r"(?<=has )\d+\.\d|\d+\.\d(?= by stems)",
    ),
}


@pytest.mark.parametrize("title", NOTES)
def test_numbers_of_a_side_note_are_those_of_the_published_rows(title):
    notebook, rows, pattern = NOTES[title]
    cells = notebook_files.cells(runtime.root() / "notebooks" / f"{notebook}.ipynb")
    notes = "\n".join(map(notebook_files.source, cells)).split(":::{admonition}")
    (note,) = (part.split(":::")[0] for part in notes if part.strip().startswith(title))
    assert re.findall(pattern, note) == worth(rows)
