"""Encoders, Transformers, generators of queries, word vectors."""
