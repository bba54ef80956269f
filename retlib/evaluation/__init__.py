"""Measures, comparisons, recorded rows and cost."""
