"""What makes what: each page's executed copy, and the book from them.

`make book` is the way in; `snakemake --cores 2 --config profile=quick` at the root works
too, and takes Snakemake's other options, an executor for a cluster among them. A page is
stale when its notebook, any file of retlib, a parameter, a file of a corpus of one's own
that it names, a plug-in, a file of data/papers or a pinned version has changed.
"""

import json
import os
import re
import sys
from dataclasses import asdict
from pathlib import Path

from retlib.core import cache, runtime
from retlib.evaluation.results import own_folder
from retlib.workflow import notebooks

runtime.set_threads()  # the jobs inherit it

ROOT = Path(workflow.basedir)
PROFILE = str(config.get("profile", "quick"))
if "sweep" in config:
    PLANS = notebooks.read_sweep(ROOT, Path(config["sweep"]))[1]
    FOLDER = runtime.build_dir() / "sweeps" / Path(config["sweep"]).stem
else:
    SEEDS = [int(seed) for seed in str(config.get("seeds", "")).split()]
    PLANS, FOLDER = notebooks.plan(ROOT, PROFILE, SEEDS), runtime.build_dir() / PROFILE
PAGES = f"{FOLDER}/pages/_build/html/index.html"
PYTHON = Path(sys.executable)
BOOK = sorted(path for name in ("_*.yml", "book/**/*.*", "retlib/**/*.py") for path in ROOT.glob(name))
# In the book's order, but first what waits for nothing: it may train for long.
URGENCY = {name: n for n, name in enumerate(sorted(reversed(PLANS), key=lambda name: not PLANS[name].after))}
STAMPS = {name: notebooks.stamp(ROOT, page) for name, page in PLANS.items()}


workdir: str(FOLDER)


def executed(names):
    return [f"{FOLDER}/notebooks/{name}.ipynb" for name in names]


def rows(name):
    # Those that the page recorded: where another run has replaced them since, they are later than its copy.
    given = PLANS[name].parameters
    file = own_folder(given["profile"], name) / cache.CHECKSUMS
    return [file] if (given["profile"], given["source"]) == (PROFILE, "run") and file.exists() else []


onstart:
    # Until a notebook ends there is nothing to decide. A limit to how many jobs start in a second makes Snakemake look at
    # every input of what waits once a second, and once more for each notebook that has ended: a third of a core.
    if workflow.local_exec:
        workflow.scheduler.job_rate_limiter = None


rule book:
    input:
        PAGES,
        executed(PLANS),  # by name, else Snakemake does not mind that one is gone


rule notebook:
    input:
        after=lambda wildcards: executed(PLANS[wildcards.name].after),
        rows=lambda wildcards: rows(wildcards.name),
    output:
        f"{FOLDER}/notebooks/{{name}}.ipynb",
    wildcard_constraints:
        name="|".join(map(re.escape, PLANS)),
    log:
        f"{FOLDER}/logs/{{name}}.log",
    resources:
        # What the published rows took, and half as much again; at least 4 GB and an hour.
        mem_mb=lambda wildcards: max(4000, notebooks.cost(wildcards.name, PROFILE)[1] * 3 // 2),
        runtime=lambda wildcards: max(60, notebooks.cost(wildcards.name, PROFILE)[0] // 40),
    priority: lambda wildcards: URGENCY[wildcards.name]
    params:
        made_of=lambda wildcards: STAMPS[wildcards.name],
        page=lambda wildcards: json.dumps(asdict(PLANS[wildcards.name]), default=str),
    shell:
        "exec {PYTHON:q} -m retlib.workflow.execute {params.page:q} {FOLDER:q} {wildcards.name:q} 2> {log:q}"


rule pages:
    input:
        executed(PLANS),
    output:
        PAGES,
    log:
        f"{FOLDER}/logs/pages.log",
    params:
        made_of=cache.key([cache.checksum(path) for path in BOOK if path.is_file() and path.suffix != ".pyc"]),
        profile=PROFILE,
        repository=os.environ.get("RETLIB_REPOSITORY", ""),  # which the pages read, too
        names=re.findall(r"(?:file|root): (\S+)", (ROOT / "_toc.yml").read_text()),
    threads: workflow.cores or 1
    shell:
        # Built aside and then published as a whole, if every page is there: a failed build leaves the last good book. By two
        # processes for each core: pages differ in size, and one process only waits for those that write.
        """
        echo building the pages
        rm -rf pages
        export RETLIB_PROFILE={params.profile:q} RETLIB_PAGE_PROCESSES=$((2 * {threads}))
        {PYTHON.parent}/jupyter-book build {ROOT:q} --path-output pages -W -n --keep-going > {log:q} 2>&1
        for name in {params.names}; do
            [ -f pages/_build/html/$name.html ] || {{ echo "ERROR: the book has no page $name" >> {log:q}; exit 1; }}
        done
        rm -rf html.new && cp -R pages/_build/html html.new && rm -rf html && mv html.new html
        """
