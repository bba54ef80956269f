"""Losses, negatives, optimizers, pre-training tasks, and the one loop."""
