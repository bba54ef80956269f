"""Where a run happens: folders, threads, seeds, device, precision, and what it cost."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import random
import resource
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from functools import cache
from html import escape
from importlib import metadata
from pathlib import Path

import numpy as np

from retlib.core.errors import require, require_one_of

# Packages whose versions can change a number; they stand in every environment fingerprint.
TRACKED = (
    "torch", "transformers", "tokenizers", "faiss-cpu", "bm25s", "gensim", "scikit-learn",
    "ir-measures", "numpy", "scipy", "pandas", "matplotlib",
)  # fmt: skip

PRECISIONS = ("float32", "bfloat16")

# bm25s tries JAX as it is imported, which where it finds a GPU takes three quarters of its memory.
os.environ.setdefault("JAX_PLATFORMS", "cpu")


def root() -> Path:
    """The project's folder: the one above the package if it holds the notebooks, else the current one."""
    above = Path(__file__).resolve().parents[2]
    return above if (above / "notebooks").is_dir() else Path.cwd()


def build_dir() -> Path:
    """Where everything that is made goes: `$RETLIB_BUILD`, or `_build` in the project's folder."""
    return Path(os.environ.get("RETLIB_BUILD") or root() / "_build").resolve()


def cache_dir() -> Path:
    """Where artefacts that several profiles share are kept: data sets, trained models, indexes."""
    return build_dir() / "cache"


def threads() -> int:
    """Return the threads for one process: `$RETLIB_THREADS`, or 1.

    Notebooks run side by side, and the order of a sum, and so its last bits, depends on the number of threads.
    """
    value = os.environ.get("RETLIB_THREADS", "1")
    require(value.isdecimal() and int(value) >= 1, f"RETLIB_THREADS = {value!r} is not a positive whole number.")
    return int(value)


def set_threads() -> None:
    """Give every numerical library of this process as many threads as `threads` says."""
    count = threads()
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
        os.environ[name] = str(count)
    # Tokenizers fork warnings and their threads are of no use beside ours.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    from threadpoolctl import threadpool_limits

    threadpool_limits(count)
    for module, setter in (("torch", "set_num_threads"), ("faiss", "omp_set_num_threads")):
        if module in sys.modules:
            getattr(sys.modules[module], setter)(count)


def set_seeds(seed: int) -> None:
    """Seed Python, numpy and torch, and ask torch for deterministic algorithms."""
    import torch

    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002 - libraries beneath us still draw from the global state
    torch.manual_seed(seed)
    # As `use_deterministic_algorithms(True, warn_only=True)`, without its import of a compiler: seconds a process.
    torch.set_deterministic_debug_mode("warn")
    # It would fill every new tensor, which costs a twentieth of a Transformer's step; nothing here reads one unfilled.
    torch.utils.deterministic.fill_uninitialized_memory = False


def seed_torch(seed: int) -> None:
    """Seed torch's generators, but without the stack trace that `torch.manual_seed` formats at every call."""
    import torch

    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(seed)


def device():
    """Return the torch device: `$RETLIB_DEVICE`, or CUDA where there is one, or the CPU."""
    import torch

    name = os.environ.get("RETLIB_DEVICE") or ("cuda" if torch.cuda.is_available() else "cpu")
    require_one_of("RETLIB_DEVICE", name.split(":")[0], ("cpu", "cuda"))
    if name.startswith("cuda"):
        wrong = "RETLIB_DEVICE asks for CUDA, but torch finds no CUDA device here. Valid here: cpu."
        require(torch.cuda.is_available(), wrong)
        # float32 is that, whatever the environment says of shorter kinds.
        torch.set_float32_matmul_precision("highest")
    return torch.device(name)


def autocast(precision: str):
    """Return the context in which matrix products run at `precision` ("float32" or "bfloat16").

    Where the processor only emulates bfloat16, and is slower with it, they run in float32.
    """
    import torch

    require_one_of("precision", precision, PRECISIONS)
    kind = device().type
    if precision == "float32" or (kind == "cpu" and not has_bfloat16()):
        return contextlib.nullcontext()
    return torch.autocast(kind, dtype=torch.bfloat16)


@cache
def has_bfloat16() -> bool:
    """Return whether the processor multiplies bfloat16 faster than float32 (AMX, AVX-512 BF16 or Arm's BF16).

    Intel's since AVX-512 FP16 do so in AMX alone: where that is hidden, bfloat16 takes 1.7 times as long.
    """
    has = {word for told in _cpuinfo("flags", "Features", "vendor_id") for word in told.split()}
    by_amx_alone = {"GenuineIntel", "avx512_fp16"} <= has
    return bool(has & ({"amx_bf16"} if by_amx_alone else {"avx512_bf16", "amx_bf16", "bf16"}))


def _cpuinfo(*names: str) -> list[str]:
    """What Linux says of the processor under these names; nothing on another system."""
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return [line.partition(":")[2].strip() for line in lines if line.startswith(names)]
    return []


def progress(iterable: Iterable | None = None, **options):
    """A tqdm progress bar for a terminal or a notebook; it leaves no trace when it is done."""
    from tqdm.auto import tqdm

    return tqdm(iterable, **{"leave": False, "mininterval": 0.5, **options})


@cache
def note(text: str) -> None:
    """Show a sentence, once in a process: on a page, whose top repeats it in the book; else among the errors."""
    if "IPython" in sys.modules and sys.modules["IPython"].get_ipython():
        from IPython.display import HTML, display

        display(HTML(f'<p class="note"><strong>{escape(text)}</strong></p>'))
    else:
        print(text, file=sys.stderr)


@cache
def revision() -> str:
    """The source revision: git's short hash, with `+` where files differ from it; "unknown" outside git."""
    git = ["git", "-C", str(root())]
    try:
        head = subprocess.run([*git, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=True)
        dirty = subprocess.run([*git, "status", "--porcelain", "-uno"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return head.stdout.strip() + ("+" if dirty.stdout.strip() else "")


@cache
def _version(package: str) -> str | None:
    with contextlib.suppress(metadata.PackageNotFoundError):
        return metadata.version(package)
    return None


def _on_cuda() -> bool:
    # What has not loaded torch, which takes seconds, computes on the processor.
    return "torch" in sys.modules and device().type == "cuda"


def arithmetic(packages: Iterable[str]) -> dict[str, str | bool | None]:
    """What the last bits of a result depend on, beside settings and threads: the kind of device, and versions."""
    kind = "cuda" if _on_cuda() else "cpu"
    return {"device": kind, "bfloat16": has_bfloat16(), **{package: _version(package) for package in packages}}


def environment() -> dict[str, str | int | float]:
    """What a result depends on besides its settings: machine, versions, threads, load, revision."""
    if _on_cuda():
        name = f"cuda: {sys.modules['torch'].cuda.get_device_name(device())}"
    else:
        name = f"cpu: {next(iter(_cpuinfo('model name')), '') or platform.processor() or platform.machine()}"
    return {
        "device": name,
        "cores": os.cpu_count() or 1,
        "threads": threads(),
        "load": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "platform": platform.system(),
        "packages": json.dumps({package: known for package in TRACKED if (known := _version(package))}),
        "revision": revision(),
    }


def peak_memory() -> int:
    """The largest resident memory of this process so far, in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # macOS counts bytes, Linux kilobytes


class Clock:
    """Wall-clock `seconds` of named parts, summed over their `with` blocks; a block inside another counts alone."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._inner = [0.0]  # of each open block, the seconds of the blocks inside it

    @contextlib.contextmanager
    def __call__(self, part: str) -> Iterator[None]:
        """Count what runs inside for a part."""
        start = time.perf_counter()
        self._inner.append(0.0)
        try:
            yield
        finally:
            taken = time.perf_counter() - start
            self.seconds[part] = self.seconds.get(part, 0.0) + taken - self._inner.pop()
            self._inner[-1] += taken


class Stopwatch:
    """Wall-clock seconds of a `with` block, in `.seconds` (readable while it runs)."""

    def __enter__(self) -> Stopwatch:
        self._start, self._stop = time.perf_counter(), None
        return self

    def __exit__(self, *_: object) -> None:
        self._stop = time.perf_counter()

    @property
    def seconds(self) -> float:
        """Seconds since the block was entered, up to its end."""
        return (self._stop or time.perf_counter()) - self._start
