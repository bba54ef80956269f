"""The command: ``python -m benchmarks``; a case that is done is not measured again."""

from __future__ import annotations

import os

import click
import pandas as pd

from benchmarks import harness
from retlib.core import runtime
from retlib.core.errors import RetlibError
from retlib.evaluation.results import Results


def show(name: str, found: Results) -> bool:
    """Print what a case measured; whether all outputs agree."""
    click.echo(f"\n{name}")
    for table in [harness.shown(found.rows)] if len(found.rows) else []:
        click.echo(table.to_string(index=False))
    for title, lines in found.tables.items():
        click.echo(f"{title}\n{lines.to_string(index=False, float_format='{:,.4g}'.format)}")
    return not len(found.rows) or bool(found.rows["agree"].all())


@click.command()
@click.argument("cases", nargs=-1)
@click.option("--quick", is_flag=True, help="Tiny sizes: whether it works; the numbers mean nothing.")
@click.option("--anyway", is_flag=True, help="Measure on a busy machine, too; the rows say so.")
@click.option("--again", is_flag=True, help="Measure what is measured already.")
@click.option("--record", is_flag=True, help="Write to data/reference, which the book shows, not to the build folder.")
@click.option("--threads", default=os.cpu_count() or 1, show_default=True, help="For each contender.")
def main(cases: tuple[str, ...], quick: bool, anyway: bool, again: bool, record: bool, threads: int) -> None:
    """Measure CASES, or all, each in a process of its own: ours and a peer in turn, on the same inputs.

    A case is kept when it is done, so that a run that was stopped goes on with the next one. Exits with 1 where outputs
    differ, or where a case could not be measured.
    """
    if record and (quick or anyway):
        raise click.UsageError("--record takes neither --quick nor --anyway: what is published is measured at rest")
    os.environ |= {"RETLIB_THREADS": str(threads), "RAYON_NUM_THREADS": str(threads), "HF_HUB_OFFLINE": "1"}
    os.environ |= {"TOKENIZERS_PARALLELISM": "true" if threads > 1 else "false"}
    pd.set_option("display.width", 250)
    names, failed = harness.load_cases(), False
    try:
        for name in cases:
            harness.CASES.get(name)
        for name in runtime.progress(cases or names, desc="cases", unit="case"):
            found = (None if again else harness.known(name, quick, record)) or harness.alone(
                name, quick, anyway, record
            )
            if isinstance(found, str):
                click.echo(found, err=True)
            failed |= isinstance(found, str) or not show(name, found)
    except RetlibError as error:
        raise click.ClickException(str(error)) from error
    raise SystemExit(int(failed))


if __name__ == "__main__":
    main()
