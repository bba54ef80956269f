"""Ten steps of each training of a generator, against what they were: who changes them raises `VERSION`.

``python tests/systems/test_golden_generator.py`` writes the curves anew.
"""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from generators import LETTERS, SMALL, make_pairs

from retlib.models.generator import HEADS, Generator
from retlib.systems.query_generation import VERSION, train_generator
from retlib.training.trainer import Schedule

GOLDEN = Path(__file__).with_name("golden_generator.json")
# A loss for each step.
TEN = Schedule(steps=10, evaluations=10, batch_size=4, precision="float32")


def curves(head):
    """The losses of training on pairs, and the score of held-out pairs."""
    start = Generator.fresh(replace(SMALL, head=head), LETTERS, seed=0)
    evaluations = train_generator(start, make_pairs(), TEN, seed=0).history.evaluations
    return {"pairs": [row["loss"] for row in evaluations[1:]], "held out": [row["score"] for row in evaluations]}


@pytest.mark.parametrize("head", sorted(HEADS))
def test_losses_are_what_they_were(head, own_build):
    golden = json.loads(GOLDEN.read_text())
    assert golden["version"] == VERSION, f"{GOLDEN.name} is of another version: write it anew"
    found = curves(head)
    for name, expected in golden[head].items():
        assert len(expected) >= 10 and found[name] == pytest.approx(expected, rel=1e-4), (
            f"{name} trains otherwise: raise VERSION in {train_generator.__module__} and write {GOLDEN.name} anew"
        )


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
@pytest.mark.parametrize("head", sorted(HEADS))
def test_a_gpu_takes_the_same_steps(head, own_build, monkeypatch):
    monkeypatch.setenv("RETLIB_DEVICE", "cuda")
    found = curves(head)
    for name, expected in json.loads(GOLDEN.read_text())[head].items():
        assert found[name] == pytest.approx(expected, rel=1e-3)


if __name__ == "__main__":
    made = {"version": VERSION, **{head: curves(head) for head in sorted(HEADS)}}
    GOLDEN.write_text(json.dumps(made, indent=1) + "\n")
