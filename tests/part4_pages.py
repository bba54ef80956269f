"""What the notebooks of Part IV declare, without data and without training."""

from retlib.core import notebook_files, runtime

NOTEBOOKS = runtime.root() / "notebooks"
PAGES = sorted(path.stem for path in NOTEBOOKS.glob("4[1-5]_*.ipynb"))


def declared(page, **parameters):
    """The names in a notebook behind the cell that declares its systems; it has no data."""
    notebook = NOTEBOOKS / f"{page}.ipynb"
    code = [notebook_files.source(cell) for cell in notebook_files.cells(notebook) if cell["cell_type"] == "code"]
    setup, declaring = (next(text for text in code if word in text) for word in ("Experiment(", "recipe.start("))
    names = {**notebook_files.default_parameters(notebook), **parameters}
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
