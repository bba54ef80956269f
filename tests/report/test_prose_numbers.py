"""The numbers that `book/at-a-glance.md` and side notes of notebooks type are those of the published rows."""

import re

import pytest

from retlib.core import notebook_files, runtime
from retlib.evaluation import results

ROOT = runtime.root()
PAGE = (ROOT / "book" / "at-a-glance.md").read_text()
PASSAGES = ("squad-passages", "natural-questions-passages")
PLACES = {  # chapter and measure
    "negatives": ("42_first_stage", "RR@10"), "loss": ("12_dual_encoder_losses", "AP@100"), "task": ("22_reqa", "R@1"),
    "ablation": ("23_ablation", "R@1"), "chain": ("51_one_leaderboard", "RR@10"), "stages": ("43_two_stage", "RR@10"),
}  # fmt: skip
BASES = {"negatives": "Pre-trained", "loss": "untrained", "task": "Embeddings"}
GENERATED, FEW = "ICT+BFS+WLP > GQ", "natural-questions-0.01"


def over(place, system, *collections, base=""):
    """Return where each number stands: a collection, and a chapter, a measure and a system for both sides."""
    other = "task" if place == "ablation" else place
    base = (*PLACES[other], base or BASES[other])
    return [(collection, (*PLACES[place], system), base) for collection in collections]


def negatives(system, base=""):
    return over("negatives", system, *PASSAGES, base=base)


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
    "| `softmax`": over("loss", "in_batch_softmax", "quora"),
    "| `cross_entropy`": over("loss", "in_batch_cross_entropy", "quora"),
    "| `triplet`": over("loss", "in_batch_triplet", "quora"),
    "Points over the untrained": over("loss", "pairwise_cross_entropy", "quora"),
    '| `Pretraining(("ict"': over("ablation", "1: shallow, ICT", FEW),
    '| `Pretraining(("bfs"': over("ablation", "2: shallow, BFS", FEW),
    '| `Pretraining(("wlp"': over("ablation", "3: shallow, WLP", FEW),
    "| `Generated(": over("chain", GENERATED, PASSAGES[1], base="ICT+BFS+WLP"),
    "Pre-training: points": over("task", "Embeddings, ICT+BFS+WLP", FEW, "natural-questions-0.8")
    + over("chain", f"{GENERATED} > labels", PASSAGES[1], base="ICT+BFS+WLP > labels"),
    "The first five are names": over("stages", "late interaction", PASSAGES[1], base="LTRe"),
}


def mean(collection, chapter, measure, system):
    rows = results.load(chapter, "laptop", "reference").lines(system, collection)
    return 100 * rows[(rows["measure"] == measure) & (rows["split"] == "test")]["value"].mean()


def worth(rows):
    """By how much one mean is above another, in each place."""
    return [f"{mean(on, *system) - mean(on, *base):+.1f}" for on, system, base in rows]


@pytest.mark.parametrize("beginning", TYPED)
def test_points_at_a_glance_are_those_of_the_published_rows(beginning):
    (part,) = (part for part in re.split(r"\n(?=\|)|\n\n", PAGE) if part.startswith(beginning))
    assert re.findall(r"[+-]\d+\.\d", part) == worth(TYPED[beginning])


def test_no_points_at_a_glance_stand_elsewhere():
    assert len(re.findall(r"[+-]\d+\.\d", PAGE)) == sum(map(len, TYPED.values()))


def note(chapter, title):
    cells = "\n".join(map(notebook_files.source, notebook_files.cells(ROOT / "notebooks" / f"{chapter}.ipynb")))
    (found,) = (part.split(":::")[0] for part in cells.split(":::{admonition}") if part.strip().startswith(title))
    return found


def test_numbers_of_side_notes_are_those_of_the_published_rows():
    four = over("negatives", "LTRe (In-batch)", *PASSAGES, "nfcorpus", "trec-dl-2019", base="In-batch, longer")
    assert re.findall(r"[+-]\d\.\d", note("42_first_stage", "Is LTRe worth its seconds?")) == worth(four)
    two = [f"{mean('squad-0.8-all', *PLACES['task'], name):.1f}" for name in ("BM25", "BM25, stemmed")]
    pattern = r"(?<=has )\d+\.\d|\d+\.\d(?= by stems)"
    assert re.findall(pattern, note("22_reqa", "Two papers, two BM25s")) == two
