"""`python -m retlib`."""

from retlib.cli import main

main()
