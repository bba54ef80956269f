"""Measures, comparisons, recorded rows, latency and cost."""
