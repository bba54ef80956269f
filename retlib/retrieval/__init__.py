"""Indexes, BM25 and its feedback, runs and their fusion."""
