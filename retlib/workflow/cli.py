"""The command line: `python -m retlib …`."""

import sys
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path
from textwrap import shorten

import click

from retlib.core import notebook_files, runtime
from retlib.core.errors import DataError, RetlibError, require, require_one_of

# A command imports what it needs itself, so that help comes at once.
PROFILES = notebook_files.profiles(runtime.root())
one_line = partial(shorten, width=100, placeholder=" …")  # of a text in a terminal


class _Group(click.Group):
    # Shows retlib's own errors, and those of a file, as a full disk, in one line.
    def invoke(self, context: click.Context) -> object:
        try:
            return super().invoke(context)
        except (RetlibError, OSError) as error:
            if isinstance(error, OSError) and error.filename is None:
                raise
            click.echo(f"error: {error}", err=True)
            sys.exit(2)
        except KeyboardInterrupt:
            click.echo("Stopped. Run again to go on: what is done is not repeated.")
            sys.exit(130)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Honest, runnable reproduction of dense-retrieval research."""


def _seeds_of(context: click.Context, option: click.Parameter, text: str) -> list[int]:
    return [*dict.fromkeys(click.IntRange(0, 2**31 - 1).convert(seed, option, context) for seed in text.split())]


_others = click.Argument(["options"], nargs=-1, type=click.UNPROCESSED)
_file = click.Argument(["file"], type=click.Path(path_type=Path, dir_okay=False, exists=True))
_option = partial(click.Option, show_default=True)
_names = partial(click.Argument, ["names"], nargs=-1, required=True)
_chapters = _names(metavar="CHAPTER...", type=click.Choice(notebook_files.names(runtime.root())))
_format = _option(["--format", "form"], type=click.Choice(("text", "csv")), default="text")
_profile = _option(["--profile"], type=click.Choice(PROFILES), default="quick")
_recorded_profile = _option(["--profile"], type=click.Choice([*PROFILES, notebook_files.EXPLORE]), default="quick")
_jobs = _option(["--jobs"], type=click.IntRange(1), default=2, help="notebooks that run side by side")
_seeds = click.Option(["--seeds"], default="", callback=_seeds_of, help='in place of the profile\'s, as in "0 1 2"')


def _show(frame, form: str) -> None:
    text = frame.to_csv(index=False) if form == "csv" else frame.to_string(index=False, float_format="{:.6g}".format)
    click.echo(text.rstrip("\n"))


def _recorded(profile: str):
    # All rows of a profile; this reads everything, so that what is unreadable is an error.
    from retlib.evaluation import results

    frame = results.rows(profile)
    how = "Run a notebook." if profile == notebook_files.EXPLORE else f"Run: make book PROFILE={profile}"
    require(len(frame) > 0, f"nothing is recorded at profile {profile!r}. {how}", DataError)
    return frame


@main.command(params=[_profile, _jobs, _seeds, _others], context_settings={"ignore_unknown_options": True})
def build(profile: str, jobs: int, seeds: list[int], options: tuple[str, ...]) -> None:
    """Run the notebooks of a profile that are not up to date, and build the pages: `make book`.

    Further OPTIONS go to Snakemake. The exit code is 1 if a notebook or the pages failed.
    """
    from retlib.workflow import build

    sys.exit(build.build(profile, jobs, seeds, options))


@main.command(params=[_format])
def datasets(form: str) -> None:
    """List the data sets: source, licence, size, and whether they are here."""
    from retlib.data.datasets import catalogue

    frame = catalogue.table()  # sources and citations would break the lines of a terminal
    _show(frame if form == "csv" else frame.drop(columns=["source", "citation"]), form)


@main.command()
@click.argument("name")
def fetch(name: str) -> None:
    """Download data set NAME, check its checksum, and put it into place."""
    from retlib.data.datasets import catalogue

    click.echo("\n".join(catalogue.fetch(name)))


_system = click.Option(["--system"], default="", help="a saved retriever or public encoder: folder, package, hub name")
_depth = _option(["--depth"], type=click.IntRange(1), default=5, help="documents of each list")


@main.command(params=[click.Argument(["corpus"]), click.Argument(["question"]), _system, _depth])
def search(corpus: str, question: str, system: str, depth: int) -> None:
    """Show what BM25 finds for a QUESTION in a CORPUS: a collection's name, or folder:, beir:, csv: and a path.

    With a system what it finds, too, and both lists as one; it encodes the corpus once.
    """
    # What BM25 alone needs: no torch.
    from retlib.data import datasets, tokenized
    from retlib.retrieval import lexical, runs

    runs.check_question(question)  # before a corpus is read, as are the weights
    datasets.COLLECTIONS.get(corpus, "CORPUS")
    bm25, systems = lexical.BM25(**lexical.STEMMED), {}
    if system:
        from retlib.models import checkpoints, retriever
        from retlib.systems.compose import Fused, Lexical, System, Target

        checkpoints.digest(system)
        encoder = System(retriever.Architecture.of_checkpoint(system))
        systems = {Path(system).name: encoder, "both": Fused((Lexical(bm25), encoder), (0.5, 0.5))}
    collection = datasets.load(corpus)
    searches = {"BM25": runs.question_search(collection, bm25.fit(tokenized.texts(collection).tolist()).search)}
    for name, each in systems.items():
        searches[name] = each.searcher(Target(collection), 0)
    for name, search in searches.items():
        rows = runs.result_list(collection, question, depth, search)
        click.echo(f"\n{name}" + ("" if len(rows) else ": no match"))
        for row in rows.itertuples():
            click.echo(f"{row.rank:3}  {row.doc_id}: {one_line(f'{row.title} {row.text}')}")
    if collection.facts:
        click.echo("\n" + ", ".join(f"{fact}: {value}" for fact, value in collection.facts.items() if value))


@main.command()
@click.argument("place")
@click.option("--minutes", type=click.IntRange(0), default=10, show_default=True, help="buy steps: 2, 10, 60 or 600")
def advise(place: str, minutes: int) -> None:
    """Try BM25, public encoders and trainings on PLACE, and print what pays there, and where the retriever lies.

    PLACE is folder:, beir:, csv: or irds: and a path or id. Minutes are those of two cores and ten thousand documents.
    """
    from retlib.data import datasets
    from retlib.report import own_corpus
    from retlib.workflow import execute

    datasets.COLLECTIONS.get(place, "PLACE")
    notebook = runtime.root() / "notebooks" / f"{own_corpus.NAME}.ipynb"
    page = execute.run_cells(notebook, corpora=[place], minutes=minutes)
    ((name, table),), facts = page["advice"].items(), page["data"].iloc[0].dropna()
    click.echo("\n" + ", ".join(f"{fact}: {value}" for fact, value in facts.items()))
    by = "its own labels" if page["judging"].get(name) == "own" else "the labels of other corpora"
    by = "generated questions, which advise nothing" if set(table["advice"]) == {own_corpus.UNKNOWN} else by
    click.echo(f"\n{own_corpus.CHOSEN_BY} above BM25 by {by}, and the 95 % interval, low to high, against the best:")
    _show(table.drop(columns="value").round(1).reset_index(names="system"), "text")
    if name in page["saved"]:
        click.echo("\nThe retriever, {}, lies in {}".format(*page["saved"][name]))


@main.command(params=[click.Argument(["chapter"], default=""), _recorded_profile, _format])
def results(chapter: str, profile: str, form: str) -> None:
    """Print the recorded rows of a profile, or of one CHAPTER.

    The column `source` is "run" for rows of your own run and "reference" for the published
    rows, which are shown for an experiment that you have not run. A CHAPTER's explorations are
    told apart by the column `experiment`, whose names can be asked for, too.
    """
    from retlib.evaluation.results import FIRST

    frame = _recorded(profile)
    if chapter:
        plain = frame["experiment"].str.partition("+")[0]  # of explorations, as `own_folder` has them
        require_one_of("CHAPTER", chapter, {*frame["experiment"], *plain})
        frame = frame[(frame["experiment"] == chapter) | (plain == chapter)]
    _show(frame if form == "csv" else frame[FIRST], form)


@main.command(params=[click.Argument(["name"], default=""), _recorded_profile, _format])
def claims(name: str, profile: str, form: str) -> None:
    """Print the papers' claims, or those whose NAME begins so, and what the rows say of each; csv has all comparisons.

    The exit code does not depend on the verdicts; it is 2 if results are missing or unreadable.
    """
    from retlib.report import ledger, tables

    chapters = _recorded(profile).groupby("experiment")["source"].first()  # else all claims would be "not tested"
    own = (chapters == "run").sum()
    click.echo(f"Profile {profile}; chapters of your own run: {own}, published: {len(chapters) - own}.", err=True)
    verdicts = ledger.ledger(profile)
    chosen = verdicts[verdicts["id"].str.startswith(name)]
    require(len(chosen) > 0, f"NAME {name!r} begins no claim's name, such as {verdicts['id'].iloc[0]!r}")
    table = tables.flat(chosen)
    if form == "text":
        table = table.drop(columns="by_bh").drop_duplicates("claim").round({"p": 4})
        table["evidence"] = table["evidence"].map(one_line)
    _show(table, form)


@main.command(params=[_names(metavar="CLAIM..."), _profile, _jobs, _seeds])
def rerun(names: tuple[str, ...], profile: str, jobs: int, seeds: list[int]) -> None:
    """Run the notebooks that test a CLAIM, and those that they need; then print the verdict.

    A claim's name stands below it in the book and in what `claims` prints. What is up to date is not run
    again. The exit code is 1 if a notebook failed.
    """
    from retlib.report import ledger, papers, tables
    from retlib.workflow import build

    chosen = papers.papers_table("claims").set_index("id")
    for name in names:
        require_one_of("CLAIM", name, chosen.index)
    if code := build.build(profile, jobs, seeds, only=sorted({*chosen.loc[list(names), "chapter"]})):
        sys.exit(code)
    for paper in chosen["paper"][list(names)].unique():
        verdicts = ledger.verdicts(paper, profile)
        _show(tables.flat(verdicts[verdicts["id"].isin(names)]), "text")


@main.command(params=[_chapters, _profile])
def record(names: tuple[str, ...], profile: str) -> None:
    """Run each CHAPTER anew, and keep its rows in data/reference as the published ones of the profile.

    What is trained stays in the build folder: stop it when you like, and call it again.
    """
    from retlib.evaluation import results
    from retlib.workflow import execute, notebooks

    plans = notebooks.plan(runtime.root(), profile)
    for name in names:
        wrong = f"{name} shows recorded rows at {profile!r}: its data are not here (python -m retlib datasets)"
        require(plans[name].parameters["source"] == "run", wrong)
    for name in sorted(names):
        execute.execute(plans[name], runtime.build_dir() / profile, name)
        if recorded := results.load(name, profile, "run"):
            recorded.save(results.reference_folder(profile, name))


@main.command(params=[_chapters, _profile])
def draw(names: tuple[str, ...], profile: str) -> None:
    """Draw each recorded CHAPTER from its rows, training nothing, and write the table of its claims beside them."""
    from retlib.evaluation import results
    from retlib.workflow import execute, notebooks

    plans = notebooks.plan(runtime.root(), profile)
    for name in names:
        # The answer on top is left out: it may be for other verdicts.
        given = {**plans[name].parameters, "profile": profile, "source": "reference"}
        drawn = execute.run_cells(plans[name].notebook, **given)["experiment"].results
        if "claims" in drawn.tables:
            drawn.save(results.reference_folder(profile, name))
            click.echo(f"{name}: {len(drawn.tables['claims'])} contrasts")


@main.command(params=[_profile, _format])
def verify(profile: str, form: str) -> None:
    """Compare your own run with the published results of a profile.

    Prints how many published means of each experiment came out the same (OK: within half a point
    of 100), nearly so (near: within two points) or not (differs), and the rows that differ; csv has
    every row. The exit code is 1 if a row differs.
    """
    from retlib.report import tables

    rows = tables.reproduction(profile)
    differing = rows[rows["status"] == tables.DIFFERS]
    _show(rows if form == "csv" else tables.counts(rows), form)
    if len(differing) and form == "text":
        click.echo()
        _show(differing.drop(columns="status").round(2), form)
    sys.exit(1 if len(differing) else 0)


@main.command(params=[_file, _jobs, _format])
def sweep(file: Path, jobs: int, form: str) -> None:
    """Run a notebook at every combination of the values in FILE, a YAML file (see notebooks/sweeps).

    Prints the means over seeds; every row is in the build folder, under the name of FILE. Combinations that
    are there are not run again. The exit code is 1 if one failed.
    """
    from retlib.workflow import build

    with redirect_stdout(sys.stderr):
        table, code = build.sweep(file, jobs)
    if len(table):
        _show(table.round(4), form)
    sys.exit(code)
