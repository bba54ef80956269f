"""NFCorpus, as BEIR packs it: questions of laymen, and medical abstracts with graded judgments (Boteva 2016)."""

from __future__ import annotations

from retlib.data.collection import SPLITS, Collection
from retlib.data.datasets import register
from retlib.data.datasets._beir import beir
from retlib.data.datasets._files import zipped
from retlib.data.datasets.catalogue import provenance

FILE = "beir/nfcorpus.zip"


@register("nfcorpus")
def load_nfcorpus() -> Collection:
    """The official release with its own splits: 3,633 documents, 2,590, 324 and 323 judged queries.

    Relevance is 2 for what a page cites itself and 1 for what a page that it links to cites. Nine texts stand in
    queries of several splits; each is left to the most guarded: test before dev before train.
    """
    return beir("nfcorpus", lambda file: zipped("beir", FILE, f"nfcorpus/{file}"), SPLITS, provenance("beir"))
