"""The verbs that make runs; no logic of their own."""

from pathlib import Path
from typing import Annotated, Any

import typer

from somnet.cli.app import (
    BatchSizeOption,
    ConfigOption,
    DataArgument,
    DeviceOption,
    EmbeddingsOption,
    EpochsOption,
    FreezeOption,
    ImgszOption,
    LinksOption,
    MethodOption,
    ModelOption,
    SeedsOption,
    SetOption,
    WeightsOption,
    WorkersOption,
    app,
    console,
)
from somnet.system.files import screen_text


def _chosen(
    method: str | None, model: str | None, embeddings: Path | None, weights: Path | None = None
) -> dict[str, Any]:
    """Settings of a training by its flags; vectors without a method are classified by the simplest one."""
    if embeddings is not None:  # also where the network that is named is the default one
        from somnet.nn.vectors import refuse_network

        refuse_network([flag for flag, told in {"--model": model, "--weights": weights}.items() if told is not None])
    return {
        "method": "linear-probe" if method is None and embeddings is not None else method,
        "model.name": model,
        "model.weights": None if weights is None else str(weights),
        "model.embeddings": None if embeddings is None else str(embeddings),
    }


@app.command()
def propose(
    data: DataArgument,
    config: ConfigOption = None,
    set_: SetOption = None,
    workers: WorkersOption = None,
    follow_links: LinksOption = None,
) -> None:
    """Find the regions of every image with EdgeBoxes, and keep them in the cache; train does it when missing."""
    from somnet.config import load_config
    from somnet.data.dataset import scan_together, unreadable_count, warn_of_folders
    from somnet.data.sources import open_source
    from somnet.system.compute import Compute
    from somnet.system.files import display_name
    from somnet.system.ranks import find_ranks, quiet_ranks
    from somnet.system.signals import AGAIN, stopping_signals

    settings = load_config(config, set_ or (), {"follow_links": follow_links})
    index = open_source(data, follow_links=settings.follow_links)
    warn_of_folders(index)
    ranks = find_ranks()
    with stopping_signals(AGAIN), quiet_ranks(ranks):
        scanned = scan_together(index, settings.proposals, Compute(workers=workers, ranks=ranks))
    if not ranks.first:
        return
    rows = scanned.readable()
    bad = len(index) - len(rows)
    console.print(f"{len(rows)} images with {scanned.counts[rows].sum()} boxes; {unreadable_count(bad)}")
    for name, reason in zip(index.column("file_name"), scanned.reasons.to_pylist(), strict=True):
        if reason is not None:
            console.print(
                f"  {screen_text(display_name(name))}: {reason}", markup=False, highlight=False, soft_wrap=True
            )


@app.command()
def plan(
    data: Annotated[
        Path | None, typer.Argument(help="The data, if they are here; else give --images and --classes.")
    ] = None,
    method: MethodOption = None,
    model: ModelOption = None,
    embeddings: EmbeddingsOption = None,
    imgsz: ImgszOption = None,
    freeze: FreezeOption = None,
    epochs: EpochsOption = None,
    batch_size: BatchSizeOption = None,
    config: ConfigOption = None,
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
    follow_links: LinksOption = None,
) -> None:
    """Estimate hours, memory and disk of a training from steps measured here; nothing is trained."""
    from somnet.config import load_config
    from somnet.runs.estimate import plan_training

    flags = {
        **_chosen(method, model, embeddings),
        "model.imgsz": imgsz,
        "model.freeze": freeze,
        "train.epochs": epochs,
        "train.batch_size": batch_size,
        "follow_links": follow_links,
    }
    settings = load_config(config, set_ or (), flags)
    sizes = None if images is None or classes is None else (images, test_images, classes)
    for line in plan_training(settings, data, sizes, speedup=speedup, cores=cores, device=device):
        console.print(line, markup=False, highlight=False, soft_wrap=True)


@app.command()
def train(
    data: DataArgument,
    out: Annotated[Path | None, typer.Option(help="Folder for the run; by default runs/1, runs/2, ...")] = None,
    method: MethodOption = None,
    model: ModelOption = None,
    weights: WeightsOption = None,
    embeddings: EmbeddingsOption = None,
    imgsz: ImgszOption = None,
    freeze: FreezeOption = None,
    epochs: EpochsOption = None,
    batch_size: BatchSizeOption = None,
    precision: Annotated[str | None, typer.Option(help="auto, fp32; on CUDA also bf16 or fp16.")] = None,
    compile_: Annotated[
        bool, typer.Option("--compile", help="Have torch compile the network first; for long trainings on a GPU.")
    ] = False,
    seed: Annotated[int | None, typer.Option(help="All randomness follows from it.")] = None,
    decisions: Annotated[
        list[Path] | None, typer.Option(help="decisions.csv of a report, taken as truth; again for a later round.")
    ] = None,
    clean_val: Annotated[
        bool,
        typer.Option("--clean-val", help="The labels under val/ are right: calibrate label_score by them."),
    ] = False,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Write losses and accuracy for TensorBoard, to RUN/tensorboard.")
    ] = False,
    follow_links: LinksOption = None,
    device: DeviceOption = "auto",
    workers: WorkersOption = None,
    config: ConfigOption = None,
    set_: SetOption = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue an interrupted run.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Start an existing run over.")] = False,
) -> None:
    """Train on DATA and leave model, scores of every image and a summary in the run folder."""
    from somnet.config import load_config
    from somnet.errors import RunError
    from somnet.training.train import train as run_training

    if resume and out is None:
        raise RunError("--resume needs the folder of the run: add --out")
    flags = {
        **_chosen(method, model, embeddings, weights),
        "model.imgsz": imgsz,
        "model.freeze": freeze,
        "train.epochs": epochs,
        "train.batch_size": batch_size,
        "train.precision": precision,
        "train.compile": compile_ or None,
        "seed": seed,
        "clean_val": clean_val or None,
        "tensorboard": tensorboard or None,
        "decisions": tuple(str(file) for file in decisions) if decisions else None,
        "follow_links": follow_links,
    }
    settings = load_config(config, set_ or (), flags)
    run_training(data, settings, out=out, device=device, workers=workers, resume=resume, overwrite=overwrite)


@app.command()
def embed(
    data: DataArgument,
    out: Annotated[Path, typer.Option(help="Parquet file to write.")],
    model: ModelOption = None,
    weights: WeightsOption = None,
    imgsz: ImgszOption = None,
    follow_links: LinksOption = None,
    device: DeviceOption = "auto",
    workers: WorkersOption = None,
    config: ConfigOption = None,
    set_: SetOption = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier file.")] = False,
) -> None:
    """Write the vectors that a pretrained network makes of the images of DATA; of a trained one, run.embeddings()."""
    from somnet.config import load_config
    from somnet.errors import ConfigError, RunError
    from somnet.nn.backbones import Network
    from somnet.runs.embedding import embed as embed_images
    from somnet.runs.embedding import write_embeddings
    from somnet.system.allocator import keep_memory
    from somnet.system.compute import Compute, choose_device

    if out.suffix != ".parquet":
        raise ConfigError(f"vectors are written as Parquet: let the name of {out} end with .parquet")
    if out.exists() and not overwrite:
        raise RunError(f"{out} exists: add --overwrite to replace it, or give another --out")
    given = None if weights is None else str(weights)
    flags = {"model.name": model, "model.weights": given, "model.imgsz": imgsz, "follow_links": follow_links}
    settings = load_config(config, set_ or (), flags)
    keep_memory()
    compute = Compute(choose_device(device), workers)
    table = embed_images(data, Network(settings.model, 2), settings, compute)
    write_embeddings(table, out)
    console.print(f"{out}: {table.num_rows} vectors", markup=False, soft_wrap=True)


@app.command()
def demo(
    seeds: SeedsOption = "0",
    out: Annotated[Path, typer.Option(help="Folder for data, runs, table and pictures.")] = Path("demo"),
) -> None:
    """Train plain, somnet and the default on synthetic demo data with known truth; write a table and pictures."""
    from somnet.benchmark.demo import parse_seeds, run_demo

    run_demo(out, parse_seeds(seeds))


@app.command()
def bench(
    data: Annotated[str, typer.Argument(help="A data set with test images, or demo for the synthetic demo data.")],
    out: Annotated[Path, typer.Option(help="Folder for runs, data, results.csv, table.md and plot.svg.")],
    methods: Annotated[
        str | None,
        typer.Option(help="all, or names, by commas, also NAME=METHOD:setting=value; by default all."),
    ] = None,
    seeds: SeedsOption = "0-4",
    noise: Annotated[
        str | None,
        typer.Option(help="Any of flip=0.4, asymmetric=0.1, open=0.1, paste=DIR, foreign=DIR, seed=0, by commas."),
    ] = None,
    tables: Annotated[
        str | None,
        typer.Option(help="The paper's tables to show beside: methods, ablations, parameters; separated by commas."),
    ] = None,
    epochs: Annotated[int | None, typer.Option(help="How often each image is used, by every method.")] = None,
    rates: Annotated[
        str | None,
        typer.Option(help="Learning rates to choose from on held-back training images, as 0.01,0.03; or auto."),
    ] = None,
    rate_seed: Annotated[int, typer.Option(min=0, help="Seed of that choice; it is not reported.")] = 1000,
    baseline: Annotated[str, typer.Option(help="The entry that gains are over.")] = "plain",
    follow_links: LinksOption = None,
    device: DeviceOption = "auto",
    workers: WorkersOption = None,
    config: ConfigOption = None,
    set_: SetOption = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue an interrupted benchmark.")] = False,
) -> None:
    """Compare methods on DATA over seeds, at equal budgets; the results are written after every run."""
    from somnet.benchmark.bench import run_bench
    from somnet.benchmark.demo import parse_seeds
    from somnet.benchmark.rates import parse_rates
    from somnet.benchmark.trials import Benchmark, RateSearch, choose_entries
    from somnet.config import load_config
    from somnet.data.noise import parse_noise

    entries, shown = choose_entries(methods, tables)
    settings = load_config(config, set_ or (), {"train.epochs": epochs, "follow_links": follow_links})
    benchmark = Benchmark(
        None if data == "demo" else Path(data),
        entries,
        parse_seeds(seeds),
        settings,
        None if noise is None else parse_noise(noise),
        shown,
        baseline,
        None if rates is None else RateSearch(parse_rates(rates), rate_seed),
    )
    results = run_bench(benchmark, out, device=device, workers=workers, resume=resume)
    if not results:  # the first rank has them
        return
    console.print((out / "table.md").read_text(encoding="utf-8"), markup=False, highlight=False, soft_wrap=True)
    console.print(f"{out}: results.csv, table.md, plot.svg", markup=False, soft_wrap=True)
    if any(result.error for result in results):
        raise typer.Exit(1)


@app.command()
def compare(
    folders: Annotated[list[Path], typer.Argument(help="The --out folders of somnet bench, one for each data set.")],
    out: Annotated[Path, typer.Option(help="Folder for table.md, table.csv and ranks.svg.")],
    baseline: Annotated[str, typer.Option(help="The entry that wins and losses are against.")] = "plain",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier comparison.")] = False,
) -> None:
    """Compare methods over several data sets: means, average ranks, wins and the critical difference."""
    from somnet.benchmark.together import compare_benchmarks

    compare_benchmarks(folders, out, baseline=baseline, overwrite=overwrite)
    console.print((out / "table.md").read_text(encoding="utf-8"), markup=False, highlight=False, soft_wrap=True)
    console.print(f"{out}: table.md, table.csv, ranks.svg", markup=False, soft_wrap=True)
