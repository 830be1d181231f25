"""What a trained method thinks of every training image and region, as tables."""

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray

from somnet.core.types import BagBatch
from somnet.data.bags import BagBatches, Inputs, each_image_once
from somnet.data.dataset import FORWARD_IMAGES, Part, Unreadable, make_inputs, region_inputs
from somnet.data.loading import load
from somnet.methods.base import Method
from somnet.runs.doubt import BELIEVED
from somnet.runs.metrics import auroc, iou
from somnet.runs.region_table import SCHEMA, join_regions, region_writer
from somnet.system.compute import Compute
from somnet.system.files import FORMULA_STARTS, atomic_path, display_name
from somnet.system.folders import ISSUES, ISSUES_CSV, REGIONS
from somnet.system.progress import track
from somnet.system.ranks import Ranks

log = logging.getLogger("somnet")

BACKGROUND_ISSUE = 0.5  # background_score below it: the label is much clearer in a region than in the whole image
SMALL = 0.5  # area of that region, at most, as a share of the image: else there is little clutter to speak of


@dataclass(frozen=True)
class Truth:
    """Scores against the known truth; None where nothing is known."""

    auroc: float | None  # of label_score, wrong labels against right ones
    belief_auroc: float | None  # the same of what the method itself believes
    best_iou: float | None  # of the best box of rightly labelled images with the true box
    image_iou: float | None  # the same for the whole image, to compare


def inspect_images(method: Method, part: Part, inputs: Inputs, compute: Compute, folder: Path) -> pa.Table:
    """One row per readable image; regions are written to the folder as they come.

    Of several ranks each inspects its share and leaves it in the folder, which all can read; only the first gets all.
    """
    ranks = compute.ranks
    share = ranks.share(len(part))
    batches = BagBatches(each_image_once(part.labels, share), FORWARD_IMAGES, inputs, None, seed=None)
    workers = compute.loaders_of(cached=method.network.frozen_trunk)
    method.eval()
    images = []
    own_regions = folder / REGIONS if ranks.world == 1 else _of_rank(folder, REGIONS, ranks.rank)
    with torch.no_grad(), region_writer(own_regions) as write, track("scoring images", len(share)) as advance:
        for batch in load(batches, workers, device=compute.device):
            image_rows, region_rows = _describe(method, batch, part)
            images.append(image_rows)
            write(region_rows)
            advance(len(batch.label))
    if ranks.world > 1:
        images = _put_together(images, folder, ranks)
    return pa.concat_tables(images) if ranks.first else pa.table({})


def inspected_inputs(method: Method, part: Part, compute: Compute) -> Inputs:
    """What an inspection shows a method of each image."""
    network, config = method.network, method.config
    if method.full_size:
        return region_inputs(part, network, config, compute)
    return make_inputs(part, network, config.model.imgsz, compute)


def _of_rank(folder: Path, name: str, rank: int | str) -> Path:
    return folder / f"{Path(name).stem}-of-rank{rank}.parquet"


def _put_together(images: list[pa.Table], folder: Path, ranks: Ranks) -> list[pa.Table]:
    """The images of all ranks, one table per rank, for the first of them, which also joins the regions."""
    files, regions = ([_of_rank(folder, name, rank) for rank in range(ranks.world)] for name in (ISSUES, REGIONS))
    files[ranks.rank].unlink(missing_ok=True)  # of a run that was killed
    if images:
        with atomic_path(files[ranks.rank]) as temporary:
            pq.write_table(pa.concat_tables(images), temporary, compression="zstd")
    ranks.barrier()
    if not ranks.first:
        return []
    gathered = [pq.read_table(file) for file in files if file.exists()]
    join_regions(folder / REGIONS, regions)
    for name in (ISSUES, REGIONS):  # more, if it was killed with more ranks
        for file in folder.glob(_of_rank(folder, name, "*").name):
            file.unlink()
    return gathered


def _describe(method: Method, batch: BagBatch, part: Part) -> tuple[pa.Table, pa.Table]:
    inspection = method.inspect(batch)
    rows = batch.rows[:, 0].cpu().numpy()  # (I,)
    weights = inspection.weights.cpu().numpy()  # (I, P)
    best = inspection.best.cpu().numpy()  # (I,)
    pick = np.arange(len(rows))
    shares = batch.boxes[:, 0].cpu().numpy()  # (I, P, 4)
    pixels = shares * np.tile(part.scan.sizes[rows], 2)[:, None]  # (I, P, 4)
    area = np.prod(shares[pick, best, 2:] - shares[pick, best, :2], axis=1)  # (I,) of the best box
    predicted = inspection.probabilities.argmax(dim=1).cpu().numpy()
    belief = inspection.label_score.clamp(0, 1).cpu().numpy()
    background_score = inspection.background_score.clamp(0, 1).cpu().numpy()
    names = pa.array([display_name(name) for name in part.index.table["file_name"].take(pa.array(rows)).to_pylist()])
    details = {name: value.cpu().numpy() for name, value in inspection.details.items()}  # (I, P) each
    classes = np.array(part.index.classes, dtype=object)

    def of_best(name: str, kind: pa.DataType) -> pa.Array:
        if name not in details:
            return pa.nulls(len(rows), kind)
        return pa.array(details[name][pick, best]).cast(kind)

    images = pa.table(
        {
            "file_name": names,
            "given_label": pa.array(classes[batch.label.cpu().numpy()], pa.string()),
            "verified": part.index.table["verified"].take(pa.array(rows)).fill_null(False),
            "predicted_label": pa.array(classes[predicted], pa.string()),
            "predicted_score": inspection.probabilities.amax(dim=1).cpu().numpy(),
            "belief": belief,
            "is_background_issue": (background_score < BACKGROUND_ISSUE) & (area <= SMALL) & (belief >= BELIEVED),
            "background_score": background_score,
            "is_unreadable_issue": np.zeros(len(rows), bool),
            "unreadable_reason": pa.nulls(len(rows), pa.string()),
            "winner_slot": of_best("slot", pa.int32()),
            "d_score": of_best("d", pa.float32()),
            "r_score": of_best("r", pa.float32()),
            "a_score": of_best("a", pa.float32()),
            "roi_weight": weights[pick, best],
            "clean_box": _box_column(pixels[pick, best]),
        }
    )
    real = batch.mask[:, 0].cpu().numpy()  # (I, P)
    image_of, box_of = np.nonzero(real)
    regions = pa.table(
        {
            "file_name": names.take(pa.array(image_of)),
            "region": box_of,
            "box": _box_column(pixels[real]),
            "roi_weight": weights[real],
            **{
                column: details[name][real] if name in details else pa.nulls(len(box_of))
                for column, name in _REGION_COLUMNS.items()
            },
        }
    ).cast(SCHEMA)
    return images, regions


_REGION_COLUMNS = {  # by their names in the details of an inspection
    "winner_slot": "slot",
    "d_score": "d",
    "r_score": "r",
    "a_score": "a",
    "similarity": "similarity",
}


def _box_column(boxes: NDArray[np.floating]) -> pa.Array:
    """Boxes (n, 4) as lists; of fixed-size lists pyarrow before 26 cannot store those that are missing."""
    return pa.ListArray.from_arrays(np.arange(0, boxes.size + 1, 4, dtype=np.int32), boxes.astype(np.float32).ravel())


def with_unreadable(images: pa.Table, unreadable: Sequence[Unreadable]) -> pa.Table:
    """Add a row for each training file that could not be read."""
    bad = [file for file in unreadable if file.split == "train"]
    if not bad:
        return images
    names = [file.file_name for file in bad]
    known = {
        "file_name": names,
        "given_label": [file.label for file in bad],
        **{column: [False] * len(names) for column in images.column_names if column.startswith("is_")},
        "is_unreadable_issue": [True] * len(names),
        "unreadable_reason": [file.reason for file in bad],
    }
    columns = [
        pa.array(known[field.name], field.type) if field.name in known else pa.nulls(len(names), field.type)
        for field in images.schema
    ]
    return pa.concat_tables([images, pa.Table.from_arrays(columns, schema=images.schema)])


def write_issues(out: Path, images: pa.Table) -> None:
    """issues.parquet and issues.csv. No cell of the CSV starts a formula."""
    with atomic_path(out / ISSUES) as temporary:
        pq.write_table(images, temporary, compression="zstd")
    with atomic_path(out / ISSUES_CSV) as temporary:
        pa.csv.write_csv(_as_text(images), temporary)


def _as_text(table: pa.Table) -> pa.Table:
    boxes = table["clean_box"].combine_chunks()
    table = table.set_column(table.schema.get_field_index("clean_box"), "clean_box", _box_texts(boxes))
    for place, field in enumerate(table.schema):
        if pa.types.is_string(field.type):
            table = table.set_column(place, field.name, _safe_cells(table.column(place)))
    return table


def _safe_cells(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """`csv_cell` of a whole column."""
    is_formula = pc.match_substring_regex(column, f"^[{re.escape(''.join(FORMULA_STARTS))}]")
    return pc.if_else(is_formula, pc.binary_join_element_wise("'", column, ""), column)


def _box_texts(boxes: pa.ListArray) -> pa.Array:
    """Boxes, which lie within their images, as four numbers with a digit after the point."""
    tenths = np.rint(10 * boxes.flatten().to_numpy().astype(np.float64)).astype(np.int64).reshape(-1, 4)  # (n, 4)
    numbers = [
        pc.binary_join_element_wise(*(pa.array(digits).cast(pa.string()) for digits in np.divmod(column, 10)), ".")
        for column in tenths.T
    ]
    texts = pc.binary_join_element_wise(*numbers, " ")
    return pc.replace_with_mask(pa.nulls(len(boxes), pa.string()), boxes.is_valid(), texts)


def against_truth(images: pa.Table, part: Part) -> Truth:
    """Compare the scores of readable images with what the data set says is true."""
    index = part.index
    true_label = index.table["true_label"].combine_chunks()
    given = pa.array(index.classes, pa.string()).take(pa.array(index.labels()))
    known = np.asarray(true_label.is_valid())  # (n,)
    clean = np.asarray(pc.equal(true_label, given).fill_null(False))  # (n,)
    area, belief_area = (
        auroc(images[name].to_numpy()[known], clean[known]) if known.any() else None
        for name in ("label_score", "belief")
    )
    boxes = index.table["true_box"].combine_chunks()
    rows = np.flatnonzero(np.asarray(boxes.is_valid()) & (clean | ~known))
    if len(rows) == 0:
        return Truth(area, belief_area, None, None)
    chosen = (boxes, images["clean_box"].combine_chunks())
    true_boxes, best = (column.take(pa.array(rows)).flatten().to_numpy().reshape(-1, 4) for column in chosen)
    whole = np.concatenate([np.zeros((len(rows), 2)), part.scan.sizes[rows]], axis=1)
    overlaps = (iou(guess.astype(np.float64), true_boxes.astype(np.float64)) for guess in (best, whole))
    best_iou, image_iou = (float(overlap.mean()) for overlap in overlaps)
    return Truth(area, belief_area, best_iou, image_iou)
