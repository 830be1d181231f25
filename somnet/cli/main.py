"""The command line: `main()`, and the verbs about this machine and the settings."""

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
from somnet.system.progress import LineFormatter
from somnet.system.progress import console as progress_console


@app.callback(invoke_without_command=True)
def _root(version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False) -> None:
    if version:
        console.print(__version__)
        raise typer.Exit


@app.command()
def doctor() -> None:
    """Check this machine: versions, EdgeBoxes, GPU, offline weights, disk; each with the fix."""
    from somnet.cli.doctor import checks

    results = checks()
    for check in results:
        mark = "[green]ok[/]" if check.good else "[red]no[/]"
        console.print(f"{mark}  {check.name}: {escape(check.result)}", highlight=False, soft_wrap=True)
        if not check.good:
            console.print(f"    fix: {escape(check.fix)}", highlight=False, soft_wrap=True)
    if not all(check.good for check in results if check.needed):
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


class _ConsoleHandler(logging.Handler):
    """Log lines as they are, above a progress bar if there is one."""

    def emit(self, record: logging.LogRecord) -> None:
        progress_console.print(self.format(record), markup=False, highlight=False, soft_wrap=True)


def main() -> None:
    """Run the command line; errors that a user can fix are one line, without a traceback."""
    handler = _ConsoleHandler()
    handler.setFormatter(LineFormatter())
    logging.getLogger("somnet").addHandler(handler)
    logging.getLogger("somnet").setLevel(logging.INFO)
    rank = os.environ.get("RANK", "0")  # torchrun's number of this process
    try:
        app()
    except TrainingStopped as stopped:
        if rank == "0":  # the others were told as well
            print(stopped, file=sys.stderr)  # the console may have been interrupted in a line, and print nothing
        _leave(stopped.exit_code)
    except KeyboardInterrupt:
        _leave(130)
    except SomnetError as error:
        who = "" if rank == "0" else f"rank {rank}: "
        progress_console.print(screen_text(f"{who}error: {error}"), markup=False, highlight=False, soft_wrap=True)
        _leave(2)


def _leave(code: int) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    sys.exit(code)
