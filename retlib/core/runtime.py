"""The machine of a run: folders, threads, seeds, device, precision, versions, times (all chapters)."""

import json
import os
import platform
import random
import resource
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from html import escape
from importlib import metadata
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from retlib.core.errors import require, require_one_of

# Packages whose versions can change what is trained; with the others, a number.
TRAINING = ("torch", "transformers", "tokenizers", "faiss-cpu", "bm25s", "gensim", "numpy")
TRACKED = (*TRAINING, "scikit-learn", "ir-measures", "scipy", "pandas", "matplotlib")

# bm25s tries JAX as it is imported, which where it finds a GPU takes three quarters of its memory.
os.environ.setdefault("JAX_PLATFORMS", "cpu")


def root() -> Path:
    """Return the project's folder: that above the package if the notebooks lie there, else the current one."""
    above = Path(__file__).resolve().parents[2]
    return above if (above / "notebooks").is_dir() else Path.cwd()


def build_dir() -> Path:
    """Return where everything that is made goes: `$RETLIB_BUILD`, or `_build` in the project's folder."""
    return Path(os.environ.get("RETLIB_BUILD") or root() / "_build").resolve()


def threads() -> int:
    """Return the threads for one process, `$RETLIB_THREADS` or 1; the last bits of a sum depend on their number."""
    value = os.environ.get("RETLIB_THREADS", "1")
    require(value.isdecimal() and int(value) >= 1, f"RETLIB_THREADS = {value!r} is not a positive whole number.")
    return int(value)


def set_threads() -> None:
    """Give every numerical library of this process as many threads as `threads` says."""
    os.environ |= {f"{name}_NUM_THREADS": str(threads()) for name in ("OMP", "MKL", "OPENBLAS", "NUMBA")}
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # their threads are of no use beside ours
    threadpool_limits(threads())
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(threads())


def set_seeds(seed: int) -> None:
    """Seed Python, numpy and torch, and ask torch for deterministic algorithms."""
    import torch

    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002 - libraries beneath us still draw from the global state
    torch.manual_seed(seed)
    # As `use_deterministic_algorithms(True, warn_only=True)`, without its import of a compiler, of seconds.
    torch.set_deterministic_debug_mode("warn")
    # It would fill new tensors, for a twentieth of a Transformer's step; nothing here reads one unfilled.
    torch.utils.deterministic.fill_uninitialized_memory = False


def device():
    """Return the torch device: `$RETLIB_DEVICE`, or CUDA where there is one, or the CPU."""
    import torch

    has_cuda = torch.cuda.is_available()
    name = os.environ.get("RETLIB_DEVICE") or ("cuda" if has_cuda else "cpu")
    require_one_of("RETLIB_DEVICE", name.split(":")[0], ("cpu", "cuda") if has_cuda else ("cpu",))
    torch.set_float32_matmul_precision("highest")  # whatever the environment says of shorter kinds
    return torch.device(name)


def autocast(precision: str):
    """Return the context of matrix products at `precision`; in float32 where the processor emulates bfloat16."""
    import torch

    in_bfloat16 = precision == "bfloat16" and (device().type == "cuda" or has_bfloat16())
    return torch.autocast(device().type, torch.bfloat16, in_bfloat16)


@cache
def has_bfloat16() -> bool:
    """Return whether the processor multiplies bfloat16 faster than float32 (AMX, AVX-512 BF16 or Arm's BF16)."""
    has = {word for name in ("flags", "Features", "vendor_id") for word in _processor().get(name, "").split()}
    by_amx_alone = {"GenuineIntel", "avx512_fp16"} <= has  # where that is hidden, it takes 1.7 times as long
    return bool(has & ({"amx_bf16"} if by_amx_alone else {"avx512_bf16", "amx_bf16", "bf16"}))


def _processor() -> dict[str, str]:
    # What Linux says of the first processor; nothing on another system.
    file = Path("/proc/cpuinfo")
    lines = file.read_text().partition("\n\n")[0].splitlines() if file.exists() else []
    return {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}


def progress(iterable: Iterable | None = None, **options):
    """Return a tqdm progress bar for a terminal or a notebook; it leaves no trace when it is done."""
    from tqdm.auto import tqdm

    return tqdm(iterable, **{"leave": False, "mininterval": 0.5, **options})


@cache
def note(text: str) -> None:
    """Show a sentence, once in a process: on a page, whose top repeats it, or among the errors."""
    if "IPython" in sys.modules and sys.modules["IPython"].get_ipython():
        from IPython.display import HTML, display

        display(HTML(f'<p class="note"><strong>{escape(text)}</strong></p>'))
    else:
        print(text, file=sys.stderr)


@cache
def _versions() -> dict[str, str]:
    # Those of the tracked packages that are installed under this name.
    return {name: metadata.version(name) for name in TRACKED if [*metadata.distributions(name=name)]}


def arithmetic() -> dict[str, str | bool | None]:
    """Return what, beside settings and threads, last bits depend on: kind of device, and versions."""
    # What has not loaded torch, which takes seconds, computes on the processor.
    kind = device().type if "torch" in sys.modules else "cpu"
    return {"device": kind, "bfloat16": has_bfloat16(), **{name: _versions().get(name) for name in TRAINING}}


def environment() -> dict[str, str | int | float]:
    """Return what a result depends on besides its settings, as columns of recorded rows."""
    name = _processor().get("model name") or platform.processor() or platform.machine()
    if (kind := arithmetic()["device"]) == "cuda":
        name = sys.modules["torch"].cuda.get_device_name(device())
    git = "git describe --always '--exclude=*' --abbrev=12 --dirty=+ || echo unknown"  # `+` where changed
    return {
        "device": f"{kind}: {name}",
        "cores": os.cpu_count() or 1,
        "threads": threads(),
        "load": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "platform": platform.system(),
        "packages": json.dumps(_versions()),
        "revision": subprocess.run(git, shell=True, cwd=root(), capture_output=True, text=True).stdout.strip(),
    }


def peak_memory() -> int:
    """Return the largest resident memory of this process so far, in bytes."""
    # macOS counts bytes, Linux kilobytes.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


class Stopwatch:
    """Wall-clock `seconds` of a `with` block."""

    def __enter__(self) -> "Stopwatch":
        self._start = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.perf_counter() - self._start


class Clock:
    """Wall-clock `seconds` of named parts, summed over `with` blocks; one inside another counts alone."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._inner = [0.0]  # of each open block, the seconds of the blocks inside it

    @contextmanager
    def __call__(self, part: str) -> Iterator[None]:
        with Stopwatch() as watch:
            self._inner.append(0.0)
            yield
        self.seconds[part] = self.seconds.get(part, 0.0) + watch.seconds - self._inner.pop()
        self._inner[-1] += watch.seconds
