"""Chains of stages: fit, rank, save, load."""
