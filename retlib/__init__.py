"""Honest, runnable reproduction of dense-retrieval research."""

import sys

from retlib.core import runtime

sys.path.append(str(runtime.root() / "notebooks"))  # where the modules of single pages stand
