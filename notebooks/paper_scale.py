"""The papers' own scale: the arithmetic of a training, what recorded ones took, and what theirs would; chapter 61."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from retlib.core import notebook_files, runtime
from retlib.evaluation import results
from retlib.report import figures, papers

PROFILE = "paper"
UNITS = {"million": 1e6, "thousand": 1e3}
WHOLE = 3  # times the work of encoding: forward, and twice as much backward
# Bytes of a weight in training: itself, its gradient and Adam's two means, in 32 bits.
WEIGHT = 16
HEAD = 64  # dimensions of an attention head


def weights(layers: int, width: int, vocabulary: int) -> int:
    """Return the weights of a Transformer's products and embeddings, without norms, biases and positions."""
    return width * (12 * layers * width + vocabulary)


@dataclass(frozen=True)
class Work:
    """Some trainings that are alike: how many, with how many examples each, of an encoder of that shape.

    `lengths` are the tokens of the texts of an example that are encoded and trained on; `batch` is the examples of a
    step. Each training encodes `passages` of so many tokens, without training on them, and searches `searched` queries
    in their vectors of so many dimensions, which are then kept.
    """

    chapter: str
    what: str
    layers: int
    width: int
    vocabulary: int
    lengths: tuple[int, ...] = ()
    examples: float = 0
    batch: int = 1
    trainings: int = 1
    passages: float = 0
    length: int = 0
    searched: float = 0
    dimension: int = 0

    def forward(self, tokens: int) -> float:
        """Return the FLOPs of encoding a text: six products of a layer, and attention; without layers, the mean."""
        each = self.layers * (24 * self.width**2 + 4 * tokens * self.width)
        return tokens * (each or 2 * self.width)

    @property
    def flops(self) -> float:
        """FLOPs of all trainings: whole trainings of the examples, encoding and exhaustive search."""
        trained = WHOLE * self.examples * sum(map(self.forward, self.lengths))
        search = 2 * self.searched * self.passages * self.dimension
        return float(self.trainings * (trained + self.passages * self.forward(self.length) + search))

    @property
    def memory(self) -> float:
        """Bytes of weights, optimizer and one step's activations in 16 bits (Korthikanti et al. 2022), and vectors."""
        activations = self.layers * sum(t * (34 * self.width + 5 * t * self.width / HEAD) for t in self.lengths)
        vectors = 4 * self.passages * self.dimension
        return WEIGHT * weights(self.layers, self.width, self.vocabulary) + self.batch * activations + vectors


KIND = ["layers", "width", "data", "negatives", "trains", "batch"]
ENCODER = "encoder", "layers", "width", "dimension", "towers", "query_length", "document_length", "checkpoint", "tokens"
READ = ["system", "collection", "seed", "seconds", "parameters"]


def timed(profiles: Iterable[str]) -> pd.DataFrame:
    """Return the published trainings whose own seconds are known, each once: `experiment`, `KIND`, FLOPs, seconds.

    Of a chain, the seconds of its last stage: those of the chain, less those of the chain before it in the same
    experiment. Only stages of one kind of data whose steps are given: pre-training, or a collection's own labels.
    """
    table = []
    for profile, name in product(profiles, parameters()):
        path = results.reference_folder(profile, name) / "rows.parquet"
        rows = pd.read_parquet(path) if path.is_file() else pd.DataFrame()
        rows = rows.reindex(columns=READ).dropna().drop_duplicates(READ[:3])
        declared = zip(map(json.loads, rows["parameters"]), rows["seed"], strict=True)
        # Encoder, stages and seed, however it is searched.
        chains = [({key: each.get(key) for key in ENCODER}, each.get("stages", []), seed) for each, seed in declared]
        spent = dict(zip(map(json.dumps, chains), rows["seconds"], strict=True))
        for (encoder, stages, seed), seconds in zip(chains, rows["seconds"], strict=True):
            *earlier, last = stages or [{}]
            before = spent.get(json.dumps((encoder, earlier, seed))) if earlier else 0.0
            data = [re.match(r"\w*", str(each))[0] for each in last.get("data", ())]
            if before is None or not last.get("steps") or data not in (["labels"], ["Pretraining"], ["MaskedTokens"]):
                continue
            grown = [stage["layers"] for stage in stages if "layers" in stage]
            layers = [encoder["layers"] if encoder["encoder"] == "transformer" else 0, *grown][-1]
            query, document = encoder["query_length"] or 0, encoder["document_length"] or 0
            lengths = [query] + [document] * (1 + last.get("options", {}).get("n", 0))
            lengths = [document] if data == ["MaskedTokens"] else [query] if last["trains"] == "query" else lengths
            work = Work("", *data, layers, encoder["width"], 0, tuple(lengths), last["steps"] * last["batch_size"])
            kind = layers, work.width, *data, last["negatives"], last["trains"], last["batch_size"]
            table.append((name, *kind, work.flops, seconds - before))
    trainings = pd.DataFrame(table, columns=["experiment", *KIND, "FLOPs", "seconds"])
    return trainings[trainings["seconds"] > 0].drop_duplicates(["experiment", "seconds"], ignore_index=True)


def kinds(timed: pd.DataFrame) -> pd.DataFrame:
    """Return each kind of training: how many, its median FLOP/s, and its seconds as predicted, over those measured.

    The prediction is by the geometric mean of the rates of all other kinds with layers, or without.
    """
    rates = (timed["FLOPs"] / timed["seconds"]).groupby([timed[name] for name in KIND])
    table = rates.agg(trainings="size", rate="median").reset_index()
    logs, layered = np.log(table["rate"]), table["layers"] > 0
    others = [logs[(layered == layered[i]) & (logs.index != i)].mean() for i in logs.index]
    return table.assign(predicted=np.exp(logs - others))


def rate(kinds: pd.DataFrame, layered: bool) -> float:
    """Return FLOP/s: the geometric mean over the kinds with layers, or without."""
    return float(np.exp(np.log(kinds["rate"][(kinds["layers"] > 0) == layered]).mean()))


def parameters() -> dict[str, dict[str, Any]]:
    """Return each notebook's parameters at the profile of the papers' settings, those of its recipe among them."""
    root = runtime.root()
    names = [name for name, entry in notebook_files.settings(root, PROFILE).items() if isinstance(entry, dict)]
    values = {name: notebook_files.at_profile(root, PROFILE, name) for name in names}
    return {name: each | each.pop("recipe", {}) for name, each in values.items()}


def size(paper: str, artefact: str, data_set: str, metric: str) -> float:
    """Return a number of a paper's table, in ones."""
    table = papers.table_lines(paper, artefact)
    (row,) = table[(table["dataset"] == data_set) & (table["metric"] == metric)].to_dict("records")
    return float(row["value"]) * UNITS.get(row["unit"].partition(" ")[0], 1)


def costs(works: Iterable[Work], kinds: pd.DataFrame, gpu: float, price: float) -> pd.DataFrame:
    """Return each work with its hours on the machine of the recorded rows and on a GPU of so many FLOP/s, and price.

    Without layers there are no hours on a GPU: they do not go to products.
    """
    table = pd.DataFrame([asdict(each) | {"FLOPs": each.flops, "memory (GB)": each.memory / 1e9} for each in works])
    layered = table["layers"] > 0
    table["hours here"] = table["FLOPs"] / layered.map({each: rate(kinds, each) for each in (True, False)}) / 3600
    table["hours on a GPU"] = (table["FLOPs"] / gpu / 3600).where(layered)
    table["price"] = price * table["hours on a GPU"]
    work, hours = ["chapter", "what", "trainings", "examples", "passages", "FLOPs"], ["hours here", "hours on a GPU"]
    return table[[*work, *hours, "memory (GB)", "price"]]


def by_chapter(costs: pd.DataFrame) -> pd.DataFrame:
    """Return each chapter's trainings, their hours and price, and its dearest line on a GPU, NaN and "" without any."""
    sums = ["trainings", "hours here", "hours on a GPU", "price"]
    table = costs.groupby("chapter", sort=False)[sums].sum(min_count=1)
    dearest = costs.dropna(subset="hours on a GPU").sort_values("hours on a GPU").groupby("chapter").last()
    line = dearest["what"] + " (" + dearest["trainings"].astype(str) + ")"
    table.insert(3, "its dearest line (trainings)", line.reindex(table.index, fill_value=""))
    return table


def figure(costs: pd.DataFrame) -> Figure:
    """Return hours of each chapter, here and on a GPU, on a logarithmic axis."""
    hours = by_chapter(costs)[["hours here", "hours on a GPU"]]
    drawn, (axis,) = figures.styled(7.0, 0.5 + 0.35 * len(hours))
    for name, style in figures.line_styles(hours).items():
        axis.plot(hours[name], hours.index, **style | {"linestyle": "none", "label": name})
    axis.hlines(hours.index, hours["hours on a GPU"], hours["hours here"], color="0.8", zorder=0)
    axis.set(xscale="log", xlabel="hours", ylabel="chapter")
    axis.invert_yaxis()
    axis.legend(fontsize=9, frameon=False)
    return drawn
