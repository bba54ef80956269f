"""Maps of encodings: documents, and queries on their way through a training (Zhan 2020, figure 1)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from retlib.core import runtime
from retlib.data.collection import hash_position
from retlib.retrieval import index
from retlib.studies.ltre_study import Study
from retlib.systems import ltre
from retlib.training.dynamics import Watching

# Documents that a query retrieves, before and after, around which its map is drawn.
NEAREST = 40
# Documents on the map of the corpus: t-SNE of more takes minutes.
MOST = 3000


def chosen(study: Study, count: int) -> list[str]:
    """The ids of some training queries, the same whenever asked: the first in the order of a hash."""
    return sorted(study.ranking.relevant("train")[0], key=hash_position)[:count]


def questions(study: Study, watching: Watching) -> pd.DataFrame:
    """The texts of the queries that are followed, by the names that they have on maps."""
    texts = study.ranking.collection.queries["text"][list(watching.followed)]
    return pd.DataFrame({"question": _names(len(texts)), "text": texts.to_numpy()})


def _names(count: int) -> list[str]:
    return [f"question {i + 1}" for i in range(count)]


def _relevant(study: Study, watching: Watching) -> list[np.ndarray]:
    """Rows of the documents that are relevant to each followed query."""
    ids, table = study.ranking.relevant("train")
    return [table.row(row) for row in ids.get_indexer(list(watching.followed))]


def _moved(study: Study, rate: float, watching: Watching, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Steps (T,), the followed queries' encodings at each (T, F, d), and those of all documents (D, d), under LTRe."""
    trained = study.watched(ltre.LTRE, "adamw", rate, seed, watching)
    return *ltre.paths(trained), ltre.encode_corpus(trained, study.ranking)


def neighbourhoods(study: Study, rate: float, watching: Watching, seed: int) -> pd.DataFrame:
    """A map around each followed query: what it retrieves before or after LTRe, and itself at both times.

    LTRe with AdamW at this learning rate, as it was watched.

    Returns
    -------
    DataFrame
        Columns `query` (its name on maps), `what` (document, relevant, before or after), `x`, `y`.
    """
    _, paths, documents = _moved(study, rate, watching, seed)
    parts = []
    for place, (name, relevant) in enumerate(zip(_names(paths.shape[1]), _relevant(study, watching), strict=True)):
        ends = paths[[0, -1], place]  # (2, d)
        nearest = index.build(index.EXACT, documents).search(ends, NEAREST)[1]
        rows = np.union1d(nearest, relevant)
        what = [*np.where(np.isin(rows, relevant), "relevant", "document"), "before", "after"]
        x, y = _project(np.concatenate([documents[rows], ends])).T
        parts.append(pd.DataFrame({"query": name, "what": what, "x": x, "y": y}))
    return pd.concat(parts, ignore_index=True)


def corpus(study: Study, rate: float, watching: Watching, seed: int) -> pd.DataFrame:
    """One map of the documents, or of a sample of them, with the path of each followed query under LTRe.

    Returns
    -------
    DataFrame
        Columns `what` (document, relevant or query), `query` (its name on maps; "" of a document),
        `step` (of a query), `x`, `y`.
    """
    steps, paths, documents = _moved(study, rate, watching, seed)
    relevant = _relevant(study, watching)
    sample = np.random.default_rng(0).permutation(len(documents))[:MOST]
    x, y = _project(np.concatenate([documents[sample], *(documents[rows] for rows in relevant), *paths])).T
    names = _names(paths.shape[1])
    rows = [("document", "", 0)] * len(sample)
    rows += [("relevant", name, 0) for name, own in zip(names, relevant, strict=True) for _ in own]
    rows += [("query", name, int(step)) for step in steps for name in names]
    return pd.DataFrame(rows, columns=["what", "query", "step"]).assign(x=x, y=y)


def layers(places: pd.DataFrame) -> Iterator[pd.DataFrame]:
    """The documents, the queries and the relevant documents of what `corpus` returns."""
    return (places[places["what"] == what] for what in ("document", "query", "relevant"))


def _project(vectors: np.ndarray) -> np.ndarray:
    """t-SNE of the vectors' directions: float32, shape (rows, 2); the same input gives the same map."""
    from sklearn.manifold import TSNE

    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    perplexity = min(30.0, (len(unit) - 1) / 3)
    model = TSNE(perplexity=perplexity, init="pca", random_state=0, n_jobs=runtime.threads())
    return model.fit_transform(unit).astype(np.float32)
