"""Retrievers: what their architecture says of heads and towers holds of what they encode."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from words import SMALL, UNITS, make_collection

from retlib.data.pairs import Pairs
from retlib.models.retriever import Retriever
from retlib.training.inputs import Inputs
from retlib.training.negatives import InBatch
from retlib.training.tasks import RetrievalTask

TABLE = UNITS.encode(make_collection().documents["text"][:12])
TRANSFORMER = replace(SMALL, encoder="transformer", layers=1, width=64)


@pytest.mark.parametrize(("towers", "apart"), [("siamese", False), ("two", True)])
def test_two_towers_begin_alike_and_are_trained_apart(towers, apart):
    retriever = Retriever.fresh(replace(TRANSFORMER, towers=towers), UNITS, seed=0)
    sides = retriever.model.query_encoder, retriever.model.document_encoder
    assert (sides[0] is not sides[1]) is apart
    np.testing.assert_array_equal(retriever.encode_queries(TABLE), retriever.encode_documents(TABLE))
    pairs = Pairs(TABLE, TABLE.take(np.arange(12)[::-1]), groups=np.arange(12))
    task = RetrievalTask(retriever.model, InBatch(Inputs(pairs, 12, 0)), "softmax")
    task.loss(task.batch(0)).backward()
    torch.optim.SGD(retriever.model.parameters(), lr=1.0).step()
    assert np.allclose(retriever.encode_queries(TABLE), retriever.encode_documents(TABLE)) is not apart
