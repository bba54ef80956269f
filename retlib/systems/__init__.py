"""Rankers, which chapters compare, and how they are trained."""
