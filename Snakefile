"""What makes what: each notebook's executed copy, and the book's pages from them.

`make book` is the way in; `snakemake --cores 2 --config profile=quick` at the root works
too, and takes Snakemake's other options, an executor for a cluster among them. A notebook
is stale when it, a module that it imports or that reads its data, a plug-in, a file of a
corpus of one's own, one of data/papers, a pinned version or one of its parameters has changed.
"""

import json
import os
import re
import sys
from pathlib import Path

from retlib.core import registry, runtime
from retlib.workflow import imports, notebooks, processes

if processes.MARK in os.environ:
    processes.end_with_parent()
runtime.set_threads()  # the jobs inherit it

ROOT = Path(workflow.basedir)
PROFILE = str(config.get("profile", "quick"))
SEEDS = [int(seed) for seed in str(config.get("seeds", "")).split()] or None
if "sweep" in config:
    from retlib.workflow import sweep

    SWEEP = sweep.read(Path(config["sweep"]), ROOT)
    PLANS, FOLDER = SWEEP.plans, SWEEP.folder
else:
    PLANS, FOLDER = notebooks.plan(ROOT, PROFILE, SEEDS), runtime.build_dir() / PROFILE
PAGES = f"{FOLDER}/pages/_build/html/index.html"
PYTHON = Path(sys.executable)
CHAINS = notebooks.chains(PLANS)


workdir: str(FOLDER)


def executed(names):
    return [f"{FOLDER}/notebooks/{name}.ipynb" for name in names]


def code(name):
    return imports.closure(PLANS[name].page.notebook, ROOT, PLANS[name].parameters)


def recorded(name):
    parameters = PLANS[name].parameters
    read = [f"{parameters['profile']}/{name}"] if parameters.get("source") == "reference" else []
    read = read or parameters.get("recorded", [])  # the folders that a page reads whole
    return [path for each in read for path in (ROOT / "data" / "reference" / each).rglob("*.parquet")]


def priority(name):
    # What most others wait for goes first, and of these what trains longest, lest it be left for the end on one core.
    return 1000 * CHAINS[name] + min(notebooks.resources(name, PROFILE)["seconds"] // 10, 999)


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
        notebook=lambda wildcards: str(PLANS[wildcards.name].page.notebook),
        code=lambda wildcards: code(wildcards.name),
        plugins=registry.plugins(),
        after=lambda wildcards: executed(PLANS[wildcards.name].after),
        recorded=lambda wildcards: recorded(wildcards.name),
        papers=sorted((ROOT / "data" / "papers").glob("*.*")),
        versions=f"{ROOT}/constraints.txt",
    output:
        f"{FOLDER}/notebooks/{{name}}.ipynb",
    wildcard_constraints:
        name="|".join(map(re.escape, PLANS)),
    log:
        f"{FOLDER}/logs/{{name}}.log",
    resources:
        mem_mb=lambda wildcards: notebooks.resources(wildcards.name, PROFILE)["mem_mb"],
        runtime=lambda wildcards: notebooks.resources(wildcards.name, PROFILE)["runtime"],
    priority: lambda wildcards: priority(wildcards.name)
    params:
        given=lambda wildcards: json.dumps(dict(PLANS[wildcards.name].parameters)),
        words=lambda wildcards: json.dumps(dict(PLANS[wildcards.name].page.words)),
        corpora=lambda wildcards: json.dumps(imports.corpora(PLANS[wildcards.name].parameters)),
    shell:
        "exec {PYTHON:q} -m retlib execute {input.notebook:q} {FOLDER:q} --name {wildcards.name:q}"
        " --parameters {params.given:q} --words {params.words:q} > {log:q} 2>&1"


rule pages:
    input:
        executed(PLANS),
        [ROOT / name for name in ("_config.yml", "_toc.yml")],
        sorted(path for path in (ROOT / "book").rglob("*") if path.is_file() and "__pycache__" not in path.parts),
        sorted((ROOT / "retlib").rglob("*.py")),  # whose docstrings are the reference
    output:
        PAGES,
    log:
        f"{FOLDER}/logs/pages.log",
    params:
        profile=PROFILE,
        repository=os.environ.get("RETLIB_REPOSITORY", ""),  # which the pages read, too
    threads: workflow.cores or 1
    shell:
        # Built aside and then published as a whole: a failed build leaves the last good book in place. By two processes for
        # each core: pages differ in size, and one process only waits for those that write.
        """
        rm -rf pages
        export RETLIB_PROFILE={params.profile:q} RETLIB_PAGE_PROCESSES=$((2 * {threads}))
        {PYTHON.parent}/jupyter-book build {ROOT:q} \
            --path-output pages -W -n --keep-going > {log:q} 2>&1
        rm -rf html.new && cp -R pages/_build/html html.new && rm -rf html && mv html.new html
        """
