"""Samplers made of their inputs by position, for tests of many of them."""

from retlib.training import negatives
from retlib.training.negatives import Inputs, StaleLists


def in_batch(source, batch_size, seed=0, mask_known=False, corrected=False):
    return negatives.InBatch(Inputs(source, batch_size, seed), mask_known, corrected)


def hardest(source, batch_size, seed=0):
    return negatives.HardestInBatch(Inputs(source, batch_size, seed))


def labelled(source, batch_size, seed=0):
    return negatives.Labelled(Inputs(source, batch_size, seed))


def random(source, batch_size, seed, n):
    return negatives.RandomNegatives(Inputs(source, batch_size, seed), n)


def bm25(source, batch_size, seed, n, lists):
    return negatives.BM25Negatives(Inputs(source, batch_size, seed, bm25=lambda depth: lists[:, :depth]), n)


def bm25_and_random(source, batch_size, seed, n, lists):
    return negatives.BM25AndRandom(Inputs(source, batch_size, seed, bm25=lambda depth: lists[:, :depth]), n)


def ann(source, batch_size, seed, n, encode, index, interval, depth):
    inputs = Inputs(source, batch_size, seed, encode, index)
    return negatives.AsynchronousNegatives(inputs, n, depth, interval)


def retrieved(source, batch_size, seed, index, n, skip=0):
    return negatives.Retrieved(Inputs(source, batch_size, seed, index=lambda: index), n, skip)


def stale_lists(source, batch_size, seed, encode, index, interval, depth, every=1, clock=None):
    return StaleLists(Inputs(source, batch_size, seed, encode, index), interval, depth, every, clock)
