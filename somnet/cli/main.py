"""The command line: `main()`, and the verbs about this machine and the settings."""

import contextlib
import logging
import os
import sys
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from somnet import __version__
from somnet.cli import run_verbs, training_verbs  # noqa: F401  they add their verbs
from somnet.cli.app import app, console
from somnet.errors import SomnetError, TrainingStopped
from somnet.system.files import screen_text
from somnet.system.progress import ConsoleHandler
from somnet.system.progress import console as progress_console


@app.callback(invoke_without_command=True)
def _root(version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False) -> None:
    if version:
        console.print(__version__)
        raise typer.Exit


@app.command()
def doctor(
    gpu: Annotated[
        bool, typer.Option("--gpu", help="Train every method for two steps on the GPU and on the CPU; minutes.")
    ] = False,
) -> None:
    """Check this machine: versions, EdgeBoxes, GPU, offline weights, disk; each with the fix."""
    from somnet.cli.doctor import checks, gpu_lines

    if gpu:
        for line in gpu_lines():
            console.print(line, markup=False, highlight=False, soft_wrap=True)
        return
    results = checks()
    for check in results:
        mark = "[green]ok[/]" if check.good else "[red]no[/]"
        console.print(f"{mark}  {check.name}: {escape(check.result)}", highlight=False, soft_wrap=True)
        if not check.good:
            console.print(f"    fix: {escape(check.fix)}", highlight=False, soft_wrap=True)
    if not all(check.good for check in results if check.needed):
        raise typer.Exit(1)


@app.command()
def cache(
    verify: Annotated[bool, typer.Option("--verify", help="Check every entry; damaged ones are deleted.")] = False,
    prune: Annotated[
        str | None, typer.Option(metavar="GB", help="Delete what was not used for longest, down to so many GB.")
    ] = None,
) -> None:
    """Size of the cache of computed boxes and feature maps; all of it can be computed again."""
    from somnet.data import cache as whole
    from somnet.system.files import cache_folder

    bad = whole.verify() if verify else []
    for file in bad:
        console.print(f"damaged, deleted: {file}", markup=False, highlight=False, soft_wrap=True)
    if verify:
        console.print(f"{len(bad)} damaged entries" if bad else "all is as it was written")
    if prune is not None:
        console.print(f"{whole.prune(whole.parse_gigabytes(prune, '--prune')) / 1e6:.1f} MB deleted")
    table = Table("kind", "entries", "MB", "what", box=None, pad_edge=False)
    found = whole.sizes()
    for kind, (count, size) in found.items():
        table.add_row(kind, str(count), f"{size / 1e6:.1f}", whole.KINDS[kind])
    console.print(table)
    total = sum(size for _, size in found.values())
    console.print(f"{cache_folder()}: {total / 1e6:.1f} MB", markup=False, highlight=False, soft_wrap=True)
    if bad:
        raise typer.Exit(1)


@app.command()
def settings(
    method: Annotated[str | None, typer.Argument(help="Also those of this method.")] = None,
) -> None:
    """List what can be set with --set or in a TOML file: names, defaults and what they mean."""
    from somnet.cli.settings import method_settings, shared_settings

    table = Table("setting", "default", "meaning", box=None, pad_edge=False)
    for line in shared_settings() + ([] if method is None else method_settings(method)):
        table.add_row(escape(line.name), escape(line.default), escape(line.meaning))
    console.print(table)


__all__ = ["app", "main"]


def main() -> None:
    """Run the command line; errors that a user can fix are one line, without a traceback."""
    logging.getLogger("somnet").addHandler(ConsoleHandler())
    logging.getLogger("somnet").setLevel(logging.INFO)
    rank = os.environ.get("RANK", "0")  # torchrun's number of this process
    try:
        app()
    except TrainingStopped as stopped:
        if rank == "0":  # the others were told as well
            with contextlib.suppress(OSError):  # a terminal that was closed
                # not by the console: it may have been interrupted in a line, and print nothing
                print(stopped.typed, file=sys.stderr)
        _leave(stopped.exit_code)
    except KeyboardInterrupt:
        _leave(130)
    except SomnetError as error:
        who = "" if rank == "0" else f"rank {rank}: "
        progress_console.print(screen_text(f"{who}error: {error.typed}"), markup=False, highlight=False, soft_wrap=True)
        _leave(2)


def _leave(code: int) -> None:
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    sys.exit(code)
