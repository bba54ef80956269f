"""Honest, runnable reproduction of dense-retrieval research."""
