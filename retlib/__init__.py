"""Honest, runnable reproduction of dense-retrieval research."""

import sys

from retlib.core import runtime

# Where the modules of single pages stand, wherever a notebook is run.
sys.path.append(str(runtime.root() / "notebooks"))
