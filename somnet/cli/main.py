"""The command line: verbs, and no logic of its own."""

import logging
import os
import shlex
import sys
from pathlib import Path
from typing import Annotated, cast

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from somnet import __version__
from somnet.errors import SomnetError, TrainingStopped
from somnet.methods.registry import METHODS
from somnet.system.files import screen_text
from somnet.system.progress import LineFormatter
from somnet.system.progress import console as progress_console

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Train image classifiers on noisy web images, and see which images and regions are noise.",
)
console = Console()

DataArgument = Annotated[
    Path,
    typer.Argument(
        help="Folder of class folders, with or without train/ and test/; with a metadata manifest; of tar shards; or "
        "a data set of the paper."
    ),
]
RunArgument = Annotated[Path, typer.Argument(help="The --out folder of somnet train.")]
DeviceOption = Annotated[str, typer.Option(help="cpu, cuda, cuda:1, ...; auto takes the GPU if there is one.")]
WorkersOption = Annotated[
    int | None, typer.Option(min=0, help="Data-loading processes; by default what the network leaves free.")
]
SeedsOption = Annotated[str, typer.Option(help="As in 0,1,2 or 0-4.")]
ConfigOption = Annotated[Path | None, typer.Option(help="TOML file with settings that differ from the defaults.")]
SetOption = Annotated[list[str] | None, typer.Option("--set", metavar="A.B=C", help="One setting; may be repeated.")]


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
        console.print(f"{mark}  {check.name}: {escape(check.found)}", highlight=False, soft_wrap=True)
        if not check.good:
            console.print(f"    fix: {escape(check.fix)}", highlight=False, soft_wrap=True)
    if not all(check.good for check in results if check.needed):
        raise typer.Exit(1)


@app.command()
def propose(
    data: DataArgument, config: ConfigOption = None, set_: SetOption = None, workers: WorkersOption = None
) -> None:
    """Find the regions of every image with EdgeBoxes, and keep them in the cache; train does it when missing."""
    from somnet.config import load_config
    from somnet.data.dataset import scan_together
    from somnet.data.sources import open_source
    from somnet.system.files import display_name
    from somnet.system.ranks import find_ranks, quiet_ranks
    from somnet.system.signals import AGAIN, stopping_signals

    settings = load_config(config, set_ or ())
    index = open_source(data)
    ranks = find_ranks()
    with stopping_signals(AGAIN), quiet_ranks(ranks):
        found = scan_together(index, settings.proposals, workers, ranks)
    if not ranks.first:
        return
    rows = found.readable()
    bad = len(index) - len(rows)
    console.print(f"{len(rows)} images with {found.counts[rows].sum()} boxes; {bad} unreadable files")
    for name, reason in zip(index.column("file_name"), found.reasons.to_pylist(), strict=True):
        if reason is not None:
            console.print(
                f"  {screen_text(display_name(name))}: {reason}", markup=False, highlight=False, soft_wrap=True
            )


@app.command()
def plan(
    config: Annotated[Path, typer.Argument(help="TOML file of a training, as configs/clothing1m.toml.")],
    data: Annotated[
        Path | None, typer.Argument(help="The data, if they are here; else give --images and --classes.")
    ] = None,
    images: Annotated[int | None, typer.Option(min=1, help="Training images, where there are no data yet.")] = None,
    test_images: Annotated[int, typer.Option(min=0, help="Test images, likewise.")] = 0,
    classes: Annotated[int | None, typer.Option(min=2, help="Classes, likewise.")] = None,
    speedup: Annotated[
        float, typer.Option(min=0.01, help="How many times as fast as this machine the device will be that trains.")
    ] = 1.0,
    cores: Annotated[
        int | None, typer.Option(min=1, help="Cores that will read images; by default those here.")
    ] = None,
    device: DeviceOption = "auto",
    set_: SetOption = None,
) -> None:
    """Estimate hours, memory and disk of a training from steps measured here; nothing is trained."""
    from somnet.config import load_config
    from somnet.training.train import plan_training

    settings = load_config(config, set_ or ())
    sizes = None if images is None or classes is None else (images, test_images, classes)
    for line in plan_training(settings, data, sizes, speedup=speedup, cores=cores, device=device):
        console.print(line, markup=False, highlight=False, soft_wrap=True)


@app.command()
def train(
    data: DataArgument,
    out: Annotated[Path | None, typer.Option(help="Folder for the run; by default runs/1, runs/2, ...")] = None,
    method: Annotated[str | None, typer.Option(help=f"{', '.join(METHODS)}.")] = None,
    model: Annotated[str | None, typer.Option(help="Any timm model name.")] = None,
    imgsz: Annotated[int | None, typer.Option(help="Side of the network's input, in pixels.")] = None,
    freeze: Annotated[
        str | None, typer.Option(help="trunk: last stage and classifier on cached maps; none: everything.")
    ] = None,
    epochs: Annotated[int | None, typer.Option(help="Passes over the images.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Images a step.")] = None,
    precision: Annotated[str | None, typer.Option(help="fp32; on CUDA also bf16 or fp16.")] = None,
    seed: Annotated[int | None, typer.Option(help="All randomness follows from it.")] = None,
    device: DeviceOption = "auto",
    workers: WorkersOption = None,
    config: ConfigOption = None,
    set_: SetOption = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with an interrupted run.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Start an existing run anew.")] = False,
) -> None:
    """Train on DATA and leave model, scores of every image and a summary in the run folder."""
    from somnet.config import load_config
    from somnet.errors import RunError
    from somnet.training.train import train as run_training

    if resume and out is None:
        raise RunError("--resume needs the folder of the run: add --out")
    flags = {
        "method": method,
        "model.name": model,
        "model.imgsz": imgsz,
        "model.freeze": freeze,
        "train.epochs": epochs,
        "train.batch_size": batch_size,
        "train.precision": precision,
        "seed": seed,
    }
    settings = load_config(config, set_ or ()).with_settings({k: v for k, v in flags.items() if v is not None})
    run_training(data, settings, out=out, device=device, workers=workers, resume=resume, overwrite=overwrite)


@app.command()
def eval(run: RunArgument, data: DataArgument, device: DeviceOption = "auto", workers: WorkersOption = None) -> None:
    """Accuracy of a run on the test images of DATA: top-1, top-5, per class."""
    from somnet.runs.run import Run

    result = Run(run).evaluate(data, device=device, workers=workers)
    table = Table("class", "top-1 %", box=None, pad_edge=False)
    for name, accuracy in result.per_class.items():
        table.add_row(escape(screen_text(name)), f"{100 * accuracy:.2f}")
    console.print(table)
    console.print(f"top-1 {100 * result.top1:.2f} %, top-5 {100 * result.top5:.2f} %, {result.n} images")


@app.command()
def report(
    run: RunArgument,
    pictures: Annotated[
        int | None, typer.Option(min=0, help="Most images with a picture; of more, the worst and best of each class.")
    ] = None,
    open_: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
) -> None:
    """Write the report of a RUN: a site to look at its images, scores and regions, and to decide. Train does it too."""
    from somnet.report.site import PICTURES, write_report
    from somnet.runs.run import Run

    index = write_report(Run(run), pictures=PICTURES if pictures is None else pictures)
    console.print(f"{index}: open it in a browser, or send the folder {index.parent}", markup=False, soft_wrap=True)
    if open_:
        typer.launch(str(index.resolve()))


@app.command()
def predict(
    run: RunArgument,
    images: Annotated[list[Path], typer.Argument(help='Image files, folders, or quoted patterns: "new/**/*.jpg".')],
    out: Annotated[Path, typer.Option(help="File to write, .csv or .jsonl.")] = Path("predictions.csv"),
    top_k: Annotated[int, typer.Option(min=1, help="Classes a row, most probable first.")] = 5,
    heatmaps: Annotated[
        Path | None, typer.Option(help="New folder for a picture an image: where the evidence is.")
    ] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Images at once.")] = 32,
    device: DeviceOption = "auto",
) -> None:
    """Classify images into a table: a row each, bad files with a reason."""
    from somnet.report.heatmaps import with_heatmaps
    from somnet.runs.predictions import image_files, write_predictions
    from somnet.runs.run import Run

    model, files = Run(run), image_files(images)
    found = model.predict(files, device=device, top=top_k, batch_size=batch_size, evidence=heatmaps is not None)
    found = with_heatmaps(found, heatmaps) if heatmaps else found
    count, bad = write_predictions(found, out, top=min(top_k, len(model.classes)))
    console.print(f"{out}: {count} rows, {bad} of them unreadable", markup=False, soft_wrap=True)
    if heatmaps:
        console.print(f"{heatmaps}: a picture of the evidence for each image", markup=False, soft_wrap=True)
    else:
        console.print("next: add --heatmaps DIR to see where the evidence is", markup=False, soft_wrap=True)


@app.command()
def export(
    run: RunArgument,
    format: Annotated[str, typer.Option(help="timm: a folder for timm; onnx: a graph for onnxruntime.")] = "onnx",
    out: Annotated[Path | None, typer.Option(help="Folder to write; by default RUN/export/FORMAT.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier export.")] = False,
) -> None:
    """Write the trained network for other programs, with a model card; the memory is not part of it."""
    from somnet.exports.network import export as write_export

    folder = write_export(run, format, out, overwrite=overwrite)
    files = ", ".join(sorted(file.name for file in folder.iterdir()))
    console.print(f"{folder}: {files}\nnext: how to load it is in {folder / 'README.md'}", markup=False, soft_wrap=True)


@app.command()
def clean(
    run: RunArgument,
    out: Annotated[Path, typer.Option(help="Folder for the cleaned data.")],
    policy: Annotated[
        str,
        typer.Option(
            help="drop: without wrong labels and copies; crop: and clutter cut away; reweight: all, with weights; "
            "relabel: sure suggestions taken, unsure images dropped."
        ),
    ] = "drop",
    threshold: Annotated[
        float | None, typer.Option(help="A label_score below it is a wrong label; by default chosen from the scores.")
    ] = None,
    max_drop_per_class: Annotated[
        float, typer.Option(help="Share of a class that may go for its labels; the best-scored stay.")
    ] = 0.5,
    decisions: Annotated[Path | None, typer.Option(help="decisions.csv of the report; it has the last word.")] = None,
    format_: Annotated[
        list[str] | None,
        typer.Option(
            "--format", help="Also write fiftyone, coco, label-studio or cleanlab; repeatable, or separated by commas."
        ),
    ] = None,
    data: Annotated[Path | None, typer.Option(help="Where the run's data are now, if they have moved.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print what would go.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier cleaned folder.")] = False,
) -> None:
    """Write a cleaned copy of a run's data, as hard links: what stays, what is known of it, and what went and why."""
    from somnet.cleaning.clean import clean as clean_data
    from somnet.cleaning.verdicts import Policy

    formats = [name.strip() for word in format_ or ["imagefolder"] for name in word.split(",")]
    result = clean_data(
        run,
        out,
        policy=cast(Policy, policy),  # checked there
        threshold=threshold,
        max_drop_per_class=max_drop_per_class,
        decisions=decisions,
        formats=formats,
        data=data,
        dry_run=dry_run,
        overwrite=overwrite,
    )
    reasons = sorted({reason for counts in result.removed.values() for reason in counts})
    table = Table("class", "kept", *reasons, box=None, pad_edge=False)
    for name in sorted({*result.kept, *result.removed}):
        gone = result.removed.get(name, {})
        table.add_row(
            escape(screen_text(name)), str(result.kept.get(name, 0)), *(str(gone.get(reason, 0)) for reason in reasons)
        )
    total = [sum(counts.get(reason, 0) for counts in result.removed.values()) for reason in reasons]
    table.add_row("total", str(sum(result.kept.values())), *map(str, total))
    console.print(table)
    no_cut = "none, only clear label issues: the scores do not fall into two heaps"
    cut = no_cut if result.threshold is None else f"{result.threshold:.3f}"
    more = f"; {result.relabelled} relabelled" if result.relabelled else ""
    more += f"; {result.cropped} cropped" if result.cropped else ""
    console.print(f"threshold of label_score: {cut}{more}", highlight=False, soft_wrap=True)
    if dry_run:
        console.print("nothing is written yet: run it again without --dry-run", soft_wrap=True)
    else:
        console.print(f"{out}: removed.csv says what went and why", markup=False, soft_wrap=True)
        console.print(f"next: somnet train {shlex.quote(str(out))}", markup=False, soft_wrap=True)


@app.command()
def demo(
    seeds: SeedsOption = "0",
    out: Annotated[Path, typer.Option(help="Folder for data, runs, table and pictures.")] = Path("demo"),
) -> None:
    """Train plain and somnet on an embedded toy web with known truth; write a table and pictures."""
    from somnet.benchmark.demo import parse_seeds, run_demo

    run_demo(out, parse_seeds(seeds))


@app.command()
def bench(
    data: Annotated[str, typer.Argument(help="A data set with test images, or demo for the embedded toy web.")],
    out: Annotated[Path, typer.Option(help="Folder for runs, data, results.csv, table.md and plot.svg.")],
    methods: Annotated[
        str | None, typer.Option(help="all, or names separated by commas; by default all if --tables has methods.")
    ] = None,
    seeds: SeedsOption = "0-4",
    noise: Annotated[
        str | None,
        typer.Option(help="Any of flip=0.4, asymmetric=0.1, open=0.1, paste=DIR, foreign=DIR, seed=0, by commas."),
    ] = None,
    tables: Annotated[
        str, typer.Option(help="The paper's tables: methods, ablations, parameters; separated by commas.")
    ] = "methods",
    epochs: Annotated[int | None, typer.Option(help="Passes over the images, the budget of every method.")] = None,
    device: DeviceOption = "auto",
    workers: WorkersOption = None,
    config: ConfigOption = None,
    set_: SetOption = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with an interrupted benchmark.")] = False,
) -> None:
    """Compare methods on DATA over seeds, at equal budgets; the results are written after every run."""
    from somnet.benchmark.bench import Benchmark, choose_entries, run_bench
    from somnet.benchmark.demo import parse_seeds
    from somnet.config import load_config
    from somnet.data.noise import parse_noise

    entries, shown = choose_entries(methods, tables)
    settings = load_config(config, set_ or ()).with_settings({} if epochs is None else {"train.epochs": epochs})
    benchmark = Benchmark(
        None if data == "demo" else Path(data),
        entries,
        parse_seeds(seeds),
        settings,
        None if noise is None else parse_noise(noise),
        shown,
    )
    results = run_bench(benchmark, out, device=device, workers=workers, resume=resume)
    if not results:  # the first rank has them
        return
    console.print((out / "table.md").read_text(encoding="utf-8"), markup=False, highlight=False, soft_wrap=True)
    console.print(f"{out}: results.csv, table.md, plot.svg", markup=False, soft_wrap=True)
    if any(result.error for result in results):
        raise typer.Exit(1)


class _ConsoleHandler(logging.Handler):
    """Log lines as they are, above a progress bar if there is one."""

    def emit(self, record: logging.LogRecord) -> None:
        progress_console.print(self.format(record), markup=False, highlight=False, soft_wrap=True)


def main() -> None:
    """Run the command line; errors that a user can mend are one line, without a traceback."""
    handler = _ConsoleHandler()
    handler.setFormatter(LineFormatter())
    logging.getLogger("somnet").addHandler(handler)
    logging.getLogger("somnet").setLevel(logging.INFO)
    rank = os.environ.get("RANK", "0")  # torchrun's number of this process
    try:
        app()
    except TrainingStopped as stopped:
        if rank == "0":  # the others were told as well
            print(stopped, file=sys.stderr)  # the console may have been struck in the middle of a line, and keep silent
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
