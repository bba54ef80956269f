"""What this book is fast at and what it is not, each beside a peer in one run: ``python -m benchmarks --help``."""
