"""The verbs that take a run; no logic of their own."""

import shlex
from pathlib import Path
from typing import Annotated, cast

import typer
from rich.markup import escape
from rich.table import Table

from somnet.cli.app import DataArgument, DeviceOption, LinksOption, RunArgument, WorkersOption, app, console
from somnet.errors import TrainingStopped
from somnet.system.files import screen_text
from somnet.system.folders import USED_DECISIONS

MOST_CONFUSIONS = 5


@app.command()
def eval(
    run: RunArgument,
    data: DataArgument,
    out: Annotated[
        Path | None, typer.Option(help="Folder for wrong.csv, the files it gets wrong, and the confusion matrix.")
    ] = None,
    embeddings: Annotated[
        Path | None, typer.Option(help="Vectors of these images, for a run trained with --embeddings.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier evaluation.")] = False,
    device: DeviceOption = "auto",
    workers: WorkersOption = None,
    follow_links: LinksOption = None,
) -> None:
    """Accuracy of a run on the test images of DATA: top-1, top-5, per class, and what is taken for what."""
    from somnet.report.confusion import check_place, write_evaluation
    from somnet.runs.run import Run

    if out is not None:
        check_place(out, overwrite=overwrite)
    links = bool(follow_links)
    result = Run(run).evaluate(data, embeddings=embeddings, device=device, workers=workers, follow_links=links)
    table = Table("class", "top-1 %", box=None, pad_edge=False)
    for name, accuracy in result.per_class.items():
        table.add_row(escape(screen_text(name)), f"{100 * accuracy:.2f}")
    console.print(table)
    if confusions := result.confusions():
        console.print("\nmost often confused:")
        for label, taken_for, images in confusions[:MOST_CONFUSIONS]:
            pair = screen_text(f"  {label} taken for {taken_for}: {images}")
            console.print(pair, markup=False, highlight=False, soft_wrap=True)
    console.print(f"\ntop-1 {100 * result.top1:.2f} %, top-5 {100 * result.top5:.2f} %, {result.n} images")
    if out is not None:
        write_evaluation(result, out)
        console.print(f"{out}: wrong.csv, confusion.csv, confusion.svg", markup=False, soft_wrap=True)
    elif result.wrong:
        console.print(f"next: add --out DIR for the {len(result.wrong)} files that it gets wrong", soft_wrap=True)


@app.command()
def report(
    run: RunArgument,
    pictures: Annotated[
        int | None, typer.Option(min=0, help="Most images with a picture; of more, the worst and best of each class.")
    ] = None,
    open_: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
) -> None:
    """Write the report of a RUN: a site to look at its images, scores and regions, and to decide. Train does it too."""
    from somnet.report.site import write_report
    from somnet.runs.data_changes import warn_of_changes
    from somnet.runs.run_folder import PICTURES, RunFolder

    opened = RunFolder(run)
    warn_of_changes(run, Path(opened.data["path"]), follow_links=opened.config.follow_links)
    page = write_report(opened, pictures=PICTURES if pictures is None else pictures)
    console.print(f"{page}: open it in a browser, or share the folder {page.parent}", markup=False, soft_wrap=True)
    if open_:
        typer.launch(str(page.resolve()))


@app.command()
def review(
    run: RunArgument,
    port: Annotated[int, typer.Option(min=0, max=65535, help="To listen on; 0: any that is free.")] = 0,
    open_: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
) -> None:
    """Show the report of a RUN to this machine alone; what you decide goes to RUN/decisions.csv at once."""
    from somnet.report.review_server import ReviewServer
    from somnet.runs.run import Run
    from somnet.system.signals import stopping_signals

    with ReviewServer(Run(run), port) as server:
        console.print(f"open {server.address}", markup=False, soft_wrap=True)
        console.print(f"decisions go to {server.decisions.path}; Ctrl-C ends it", markup=False, soft_wrap=True)
        if open_:
            typer.launch(server.address)
        try:
            with stopping_signals():  # also where a shell has set Ctrl-C aside, as for a command in the background
                server.serve_forever()
        except TrainingStopped:
            decided, data, used = str(server.decisions.path), Run(run).data["path"], Run(run).path / USED_DECISIONS
            rounds = [str(used), decided] if used.is_file() else [decided]  # the latest last
            options = [word for one in rounds for word in ("--decisions", one)]
            learn = shlex.join(["somnet", "train", data, *options, "--out", "NEW"])
            clean = shlex.join(["somnet", "clean", str(run), "--decisions", decided, "--out", "DIR"])
            console.print(f"next, learn from them:        {learn}", markup=False, soft_wrap=True)
            console.print(f"      or write clean data:    {clean}", markup=False, soft_wrap=True)


@app.command()
def predict(
    run: RunArgument,
    images: Annotated[list[Path], typer.Argument(help='Image files, folders, or quoted patterns: "new/**/*.jpg".')],
    out: Annotated[Path, typer.Option(help="File to write, .csv or .jsonl.")] = Path("predictions.csv"),
    top_k: Annotated[int, typer.Option(min=1, help="Classes per row, most probable first.")] = 5,
    heatmaps: Annotated[
        Path | None, typer.Option(help="New folder for one picture per image that shows where the evidence is.")
    ] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Images at once.")] = 32,
    device: DeviceOption = "auto",
    follow_links: LinksOption = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier table.")] = False,
) -> None:
    """Classify images into a table: a row each, bad files with a reason."""
    from somnet.report.heatmaps import with_heatmaps
    from somnet.runs.predictions import check_table, image_files, predict_files, write_predictions
    from somnet.runs.run_folder import RunFolder

    model, files = RunFolder(run), image_files(images, follow_links=bool(follow_links))
    check_table(out, overwrite=overwrite)
    evidence = heatmaps is not None
    predictions = predict_files(model, files, device=device, top=top_k, batch_size=batch_size, evidence=evidence)
    predictions = with_heatmaps(predictions, heatmaps) if heatmaps else predictions
    count, bad = write_predictions(predictions, out, top=min(top_k, len(model.classes)))
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
    files = ", ".join(sorted(file.name for file in folder.iterdir() if not file.name.startswith(".")))
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
        float | None,
        typer.Option(
            help="A label_score below it is doubted; by default so that, by the scores, 80 % of what goes is wrong."
        ),
    ] = None,
    max_drop_per_class: Annotated[
        float, typer.Option(help="Share of a class that may go for its labels; the best-scored stay.")
    ] = 0.5,
    drop_poor: Annotated[
        bool,
        typer.Option("--drop-poor", help="Without dark, blurred, tiny and other poor pictures; blank ones go always."),
    ] = False,
    decisions: Annotated[
        Path | None,
        typer.Option(
            help="decisions.csv of the report, overrides scores; without it RUN/decisions.csv, if there is one."
        ),
    ] = None,
    format_: Annotated[
        list[str] | None,
        typer.Option(
            "--format",
            help="Also write fiftyone, coco, label-studio, cleanlab, huggingface; repeatable, or separated by commas.",
        ),
    ] = None,
    data: Annotated[Path | None, typer.Option(help="Where the run's data are now, if they have moved.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print what would go.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier cleaned folder.")] = False,
) -> None:
    """Write a cleaned copy of a run's data, as hard links, with a list of what was removed and why."""
    from somnet.cleaning.clean import CleaningRules
    from somnet.cleaning.clean import clean as clean_data
    from somnet.cleaning.verdicts import Policy

    formats = [name.strip() for word in format_ or ["imagefolder"] for name in word.split(",")]
    result = clean_data(
        run,
        out,
        CleaningRules(cast(Policy, policy), threshold, max_drop_per_class, decisions, drop_poor),  # checked there
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
    more = f"; {result.relabelled} relabelled" if result.relabelled else ""
    more += f"; {result.cropped} cropped" if result.cropped else ""
    console.print(f"threshold of label_score: {result.threshold:.3f}{more}", highlight=False, soft_wrap=True)
    if result.in_doubt:
        where = "" if dry_run else ": kept_in_doubt.csv says which and why"
        console.print(f"{result.in_doubt:,} of those kept are in doubt{where}", highlight=False, soft_wrap=True)
    if dry_run:
        console.print("nothing is written yet: run it again without --dry-run", soft_wrap=True)
    else:
        console.print(f"{out}: removed.csv says what was removed and why", markup=False, soft_wrap=True)
        weights = ", which takes the weights in metadata.parquet" if policy == "reweight" else ""
        console.print(f"next: somnet train {shlex.quote(str(out))}{weights}", markup=False, soft_wrap=True)
