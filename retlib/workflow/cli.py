"""The command line: `python -m retlib …`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Any

import click

from retlib.core import notebook_files, runtime
from retlib.core.errors import DataError, RetlibError, require, require_one_of
from retlib.core.notebook_files import EXPLORE

# A command imports what it needs itself, so that help comes at once.
if TYPE_CHECKING:
    import pandas as pd

PROFILES = notebook_files.profiles(runtime.root())
LONGEST = 100_000  # minutes of a piece
WIDEST = 100  # letters of a claim's evidence in a terminal


class _Group(click.Group):
    """A group of commands that shows retlib's own errors, and those of a call, as one line, without a traceback."""

    def main(self, *arguments: Any, **options: Any) -> object:
        try:
            return super().main(*arguments, **options, standalone_mode=False)
        except click.UsageError as error:
            said = error.format_message()
            if not isinstance(error, click.exceptions.NoArgsIsHelpError):  # which says the help
                said = f"error: {said}" + (f" See {error.ctx.command_path} -h." if error.ctx else "")
            click.echo(said, err=True)
            sys.exit(2)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        require_one_of("COMMAND", name, self.commands)
        return super().get_command(context, name)

    def invoke(self, context: click.Context) -> object:
        try:
            return super().invoke(context)
        except (RetlibError, OSError) as error:
            # Of the system's errors those of a file: a full disk, a folder that cannot be written.
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


_format = click.option("--format", "form", type=click.Choice(("text", "csv")), default="text", show_default=True)


def _choice(*profiles: str) -> Callable:
    return click.option("--profile", type=click.Choice(profiles), default="quick", show_default=True)


_profile, _recorded_profile = _choice(*PROFILES), _choice(*PROFILES, EXPLORE)


def _whole(context: click.Context, option: click.Parameter, text: str) -> list[int] | None:
    try:
        seeds = [int(seed) for seed in text.split()]
    except ValueError:
        raise click.BadParameter(f'{text!r} must be whole numbers with spaces between, as in "0 1 2".') from None
    if any(not 0 <= seed < 2**31 for seed in seeds):
        raise click.BadParameter(f"{text!r} must be whole numbers of at least 0 and at most {2**31 - 1}.")
    if len({*seeds}) < len(seeds):
        raise click.BadParameter(f"{text!r} names a seed twice.")
    return seeds or None


def _mapping(context: click.Context, option: click.Parameter, text: str) -> dict:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise click.BadParameter(f"{text!r} is not JSON ({error}).") from None
    if not isinstance(found, dict):
        raise click.BadParameter(f"{text!r} must be an object of JSON.")
    return found


_seeds = click.option("--seeds", default="", callback=_whole, help='in place of the profile\'s, as in "0 1 2"')


def _jobs(default: int) -> Callable:
    return click.option(
        "--jobs", type=click.IntRange(1), default=default, show_default=True, help="notebooks that run side by side"
    )


def _show(frame: pd.DataFrame, form: str) -> None:
    text = frame.to_csv(index=False) if form == "csv" else frame.to_string(index=False, float_format="{:.6g}".format)
    click.echo(text.rstrip("\n"))


def _recorded(profile: str) -> pd.DataFrame:
    """All rows of a profile; this reads everything, so that what is unreadable is an error."""
    from retlib.evaluation import results

    frame = results.rows(profile)
    how = "Run a notebook." if profile == EXPLORE else f"Run: make book PROFILE={profile}"
    require(len(frame) > 0, f"nothing is recorded at profile {profile!r}. {how}", DataError)
    return frame


@main.command(context_settings={"ignore_unknown_options": True})
@_profile
@_jobs(2)
@_seeds
@click.argument("options", nargs=-1, type=click.UNPROCESSED)
def build(profile: str, jobs: int, seeds: list[int] | None, options: tuple[str, ...]) -> None:
    """Run the notebooks of a profile that are not up to date, and build the pages: `make book`.

    Further OPTIONS go to Snakemake. The exit code is 1 if a notebook or the pages failed.
    """
    from retlib.workflow import build as book
    from retlib.workflow import processes

    if "MAKELEVEL" in os.environ:
        processes.end_with_parent()
    sys.exit(book.build(profile, jobs, seeds, options))


@main.command()
@click.argument("notebook", type=click.Path(path_type=Path, resolve_path=True, exists=True, dir_okay=False))
@click.argument("folder", type=click.Path(path_type=Path, resolve_path=True, file_okay=False))
@click.option("--name", help="of the copy, if not the notebook's")
@click.option("--parameters", default="{}", metavar="JSON", callback=_mapping)
@click.option("--words", default="{}", metavar="JSON", callback=_mapping, help="of a template")
def execute(notebook: Path, folder: Path, name: str | None, parameters: dict, words: dict) -> None:
    """Run one NOTEBOOK in FOLDER, as Snakemake asks for it."""
    from retlib.workflow import execute as one
    from retlib.workflow import processes

    if processes.MARK in os.environ:
        processes.end_with_parent()
    one.execute(notebook, folder, parameters, name, words)


@main.command()
@_format
def datasets(form: str) -> None:
    """List the data sets: source, licence, size, and whether they are here."""
    from retlib.data.datasets import catalogue

    frame = catalogue.table()
    if form == "text":
        frame = frame.drop(columns=["source", "citation"])  # they would break the lines of a terminal; csv has them
    _show(frame, form)


@main.command()
@click.argument("name")
def fetch(name: str) -> None:
    """Download data set NAME, check its checksum, and put it into place."""
    from retlib.data.datasets import catalogue

    for line in catalogue.fetch(name):
        click.echo(line)


@main.command()
@click.argument("corpus")
@click.argument("question")
@click.option("--system", default="", help="a saved retriever or a public encoder: folder, package, hub name")
@click.option("--depth", type=click.IntRange(1), default=5, show_default=True, help="documents of each list")
def search(corpus: str, question: str, system: str, depth: int) -> None:
    """Show what BM25 finds for a QUESTION in a CORPUS: a collection's name, or folder:, beir:, csv: and a path.

    With a system what it finds, too, and both lists as one; it encodes the corpus once.
    """
    # What BM25 alone needs: no torch.
    from retlib.data import datasets
    from retlib.data.tokenized import texts
    from retlib.retrieval.lexical import BM25, STEMMED
    from retlib.retrieval.runs import check_question, first_row, result_list

    check_question(question)  # before a corpus is read, as are the weights
    datasets.COLLECTIONS.get(corpus, "CORPUS")
    if system:
        from retlib.models import checkpoints
        from retlib.models.retriever import Architecture
        from retlib.systems.compose import Fused, Lexical, System, Target

        checkpoints.digest(system)
        encoder = System(Architecture.of_checkpoint(system))
        both = Fused((Lexical(BM25(**STEMMED)), encoder), (0.5, 0.5))
    collection = datasets.load(corpus)
    bm25 = BM25(**STEMMED).fit(texts(collection).tolist())
    answers = {"BM25": lambda text, k: first_row(bm25.search([text], k))}
    if system:
        answers[Path(system).name] = encoder.answer(Target(collection), 0)
        answers["both"] = both.of(answers.values())
    for name, answer in answers.items():
        found = result_list(collection, question, depth, answer)
        click.echo(f"\n{name}" + ("" if len(found) else ": no match"))
        for row in found.itertuples():
            text = shorten(f"{row.title} {row.text}", WIDEST, placeholder=" …")
            click.echo(f"{row.rank:3}  {row.doc_id}: {text}")
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
    from retlib.workflow import execute as one

    form = "folder" if Path(place).is_dir() else "csv"
    require(":" in place or not Path(place).exists(), f"PLACE = {place!r} needs a form before it: {form}:{place}")
    datasets.COLLECTIONS.get(place, "PLACE")
    page = one.run_cells(own_corpus.NAME, corpora=[place], minutes=minutes)
    ((name, table),), facts = page["advice"].items(), page["data"].iloc[0].dropna()
    click.echo("\n" + ", ".join(f"{fact}: {value}" for fact, value in facts.items()))
    by = "its own labels" if page["judging"].get(name) == "own" else "the labels of other corpora"
    by = "generated questions, which advise nothing" if set(table["advice"]) == {own_corpus.UNKNOWN} else by
    click.echo(f"\n{own_corpus.CHOSEN_BY} above BM25 by {by}, and the 95 % interval, low to high, against the best:")
    _show(table.drop(columns="value").round(1).reset_index(names="system"), "text")
    if name in page["saved"]:
        click.echo("\nThe retriever, {}, lies in {}".format(*page["saved"][name]))


@main.command()
@click.argument("chapter", default="")
@_recorded_profile
@_format
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


@main.command()
@click.argument("name", default="")
@_recorded_profile
@_format
def claims(name: str, profile: str, form: str) -> None:
    """Print the papers' claims, or those whose NAME begins so, and what the rows say of each; csv has all comparisons.

    The exit code does not depend on the verdicts; it is 2 if results are missing or unreadable.
    """
    from retlib.report import ledger, verdict_tables

    chapters = _recorded(profile).groupby("experiment")["source"].first()  # else all claims would be "not tested"
    own = (chapters == "run").sum()
    click.echo(f"Profile {profile}; chapters of your own run: {own}, published: {len(chapters) - own}.", err=True)
    verdicts = ledger.ledger(profile)
    chosen = verdicts[verdicts["id"].str.startswith(name)]
    require(len(chosen) > 0, f"NAME {name!r} begins no claim's name, such as {verdicts['id'].iloc[0]!r}")
    verdicts = verdict_tables.flat(chosen)
    if form == "text":
        short = verdicts.drop(columns="by_bh").drop_duplicates("claim")
        short["evidence"] = [shorten(text, WIDEST, placeholder=" …").ljust(WIDEST) for text in short["evidence"]]
        click.echo(short.to_string(index=False, float_format="%.2g"))
    else:
        _show(verdicts, form)


@main.command()
@click.argument("names", metavar="CLAIM...", nargs=-1, required=True)
@_profile
@_jobs(2)
@_seeds
def rerun(names: tuple[str, ...], profile: str, jobs: int, seeds: list[int] | None) -> None:
    """Run the notebooks that test a CLAIM, and those that they need; then print the verdict.

    A claim's name stands below it in the book and in what `claims` prints. What is up to date is not run
    again. The exit code is 1 if a notebook failed.
    """
    from retlib.report import ledger, verdict_tables
    from retlib.report.papers import papers_table
    from retlib.workflow import build as book

    chosen = papers_table("claims").set_index("id")
    for name in names:
        require_one_of("CLAIM", name, chosen.index)
    tested = sorted({*chosen.loc[list(names), "chapter"]})
    code = book.build(profile, jobs, seeds, only=tested)
    if code:
        sys.exit(code)
    for paper in chosen["paper"][list(names)].unique():
        found = ledger.verdicts(paper, profile)
        for row in found[found["id"].isin(names)].itertuples():
            click.echo(f"\n{verdict_tables.as_text(row)}")


@main.command()
@click.argument("names", metavar="CHAPTER...", nargs=-1, required=True)
@_profile
@click.option("--minutes", type=click.FloatRange(0, min_open=True), help="stop after so many; call again to go on")
def record(names: tuple[str, ...], profile: str, minutes: float | None) -> None:
    """Run each CHAPTER anew, and keep its rows in data/reference as the published ones of the profile.

    With `--minutes`, in pieces: what is trained stays in the build folder. The exit code is 130 while more is to do.
    """
    from retlib.workflow import execute as one
    from retlib.workflow import processes

    if minutes is not None:
        require(minutes < LONGEST, f"--minutes is {minutes:g}, and must be below {LONGEST}")  # so that nan is refused
        processes.end_after(60 * minutes)
    one.record(names, profile)


@main.command()
@click.argument("names", metavar="CHAPTER...", nargs=-1, required=True)
@_profile
def draw(names: tuple[str, ...], profile: str) -> None:
    """Draw each recorded CHAPTER from its rows, training nothing, and write the table of its claims beside them."""
    from retlib.workflow import execute as one

    one.draw(names, profile)


@main.command()
@click.argument("names", metavar="CHAPTER...", nargs=-1, required=True)
@_profile
def train(names: tuple[str, ...], profile: str) -> None:
    """Train what each CHAPTER compares, in this process and without a page; what is there is not trained again."""
    from retlib.workflow import execute as one

    one.train(names, profile)


@main.command()
@_profile
@_format
def verify(profile: str, form: str) -> None:
    """Compare your own run with the published results of a profile.

    Prints how many published means of each experiment came out the same (OK: within half a point
    of 100), nearly so (near: within two points) or not (differs), and the rows that differ; csv has
    every row. The exit code is 1 if a row differs.
    """
    from retlib.report import verify as verification

    found = verification.reproduction(profile)
    differing = found[found["status"] == verification.DIFFERS]
    if form == "csv":
        _show(found, form)
    else:
        _show(verification.matrix(found), form)
        if len(differing):
            click.echo()
            _show(differing.drop(columns="status").round(2), form)
    sys.exit(1 if len(differing) else 0)


@main.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, exists=True))
@_jobs(1)
@_format
def sweep(file: Path, jobs: int, form: str) -> None:
    """Run a notebook at every combination of the values in FILE, a YAML file (see notebooks/sweeps).

    Prints the means over seeds; every row, and a plot, are in the build folder, under the name of FILE.
    Combinations that are there are not run again. The exit code is 1 if one failed.
    """
    from retlib.workflow import sweep as sweeps

    chosen = sweeps.read(file, runtime.root())
    with redirect_stdout(sys.stderr):
        frame, code = sweeps.run(chosen, jobs)
    if len(frame):
        rows, picture, table = chosen.folder / "results.csv", chosen.folder / "plot.png", sweeps.summary(frame, chosen)
        frame.to_csv(rows, index=False)
        _show(table if form == "csv" else table.round(4), form)
        click.echo(f"Every row: {rows}", err=True)
        sweeps.plot(table, chosen).savefig(picture)
        click.echo(f"The plot:  {picture}", err=True)
    sys.exit(code)
