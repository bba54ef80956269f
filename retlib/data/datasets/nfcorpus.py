"""NFCorpus, as BEIR packs it: questions of laymen, and medical abstracts with graded judgments (Boteva 2016)."""

from dataclasses import replace

from retlib.core.errors import DataError
from retlib.data.collection import Collection
from retlib.data.datasets import catalogue, own, register


@register("nfcorpus")
def load_nfcorpus() -> Collection:
    """Return the official release with its own splits: 3,633 documents, 2,590, 324 and 323 judged queries.

    Relevance is 2 for what a page cites itself and 1 for what a page that it links to cites. Nine texts stand in
    queries of several splits; each is left to the most guarded: test before dev before train.
    """
    path = catalogue.locate("beir", "beir/nfcorpus.zip")
    try:
        return replace(own.find(f"beir:{path}").collection(), name="nfcorpus", provenance={})
    except DataError as error:
        raise ValueError(str(error)) from error  # so that `catalogue.reading` says how to get the release
