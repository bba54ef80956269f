"""What the notebooks of Part IV declare, without data and without training; and what they record under which name."""

from itertools import product

from training_time import BEST, SECONDS

from retlib.core import notebook_files, runtime
from retlib.studies.part4 import MEASURES, PUBLIC

NOTEBOOKS = runtime.root() / "notebooks"
PAGES = sorted(path.stem for path in NOTEBOOKS.glob("4[1-5]_*.ipynb"))
COSTS = ["training seconds", "search share", "queries to best"]


def declared(page, **parameters):
    """The names in a notebook behind the cell that declares its systems; it has no data."""
    notebook = NOTEBOOKS / f"{page}.ipynb"
    code = [notebook_files.source(cell) for cell in notebook_files.cells(notebook) if cell["cell_type"] == "code"]
    setup, declaring = (next(text for text in code if word in text) for word in ("import Experiment", "recipe.start("))
    names = {**notebook_files.declared(notebook), **parameters}
    exec(setup, names)
    names["targets"] = []
    exec(declaring, names)
    return names


def systems(page, names):
    """The dense systems that a notebook trains, by their names."""
    if page == "41_training_dynamics":
        return {"start": names["bm25"], **names["watched"]}
    if page == "44_compressed_index":
        return {**names["trained"], **names["crossed"], **names["searched"], "ANCE": names["ance"]}
    return names["systems"]


def recorded(page, parameters):
    """What a notebook records with these parameters: pairs of system and measure.

    Of notebook 41 it is what stands in the table of curves; seconds of single parts are left out.
    """
    names = declared(page, **parameters)
    if page == "41_training_dynamics":
        seen = ["RR@10", "R@200", "overlap BM25", "overlap stale"]
        return set(product(["Warm-up", *names["watched"]], seen))
    if page == "42_first_stage":
        found = set(product(["BM25", "BM25+RM3", *names["systems"]], MEASURES))
        found |= set(product([PUBLIC], MEASURES)) - {(PUBLIC, "R@1000")}
        return found | set(product([f"{name}, rerank" for name in names["systems"]], ["RR@10", "nDCG@10"]))
    if page == "43_two_stage":
        return set(product(names["systems"], ["RR@10", "R@1000", "latency ms", "latency p95 ms"]))
    if page == "45_training_time":
        return set(product(names["systems"], [SECONDS, BEST]))
    found = set(product(names["searched"], [*MEASURES, "index bytes"]))
    found |= set(product(names["trained"], [*MEASURES, *COSTS])) | set(product(["ANCE"], COSTS))
    return found | set(product(names["crossed"], ["RR@10", "nDCG@10"]))
