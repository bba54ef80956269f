"""`python -m retlib`."""

from retlib.workflow.cli import main

main()
