"""Runs on disk that nobody trained: tables and a memory of any size, in a moment."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from torch.nn import functional as F

from somnet.config import Config
from somnet.denoise import write_tables
from somnet.files import write_json, write_text
from somnet.run import CONFIG, DATA, Run
from somnet.training.checkpoint import LAST, save_checkpoint

REGIONS = 6  # of an image


def made_up_run(path: Path, classes: Sequence[str], side: int, images: int, data: Path | None = None) -> Run:
    """A run of SOMNet whose images, all of 64 x 48 pixels, need not exist; slot 0 wins nothing."""
    rng = np.random.default_rng(0)
    slots, count = side * side, images * REGIONS
    label = np.arange(images) % len(classes)
    names = [f"train/{number}.jpg" for number in range(images)]
    box = np.tile(np.array([0, 0, 64, 48], np.float32), (count, 1))
    box[np.arange(count) % REGIONS > 0] = [8, 8, 40, 40]
    slot = rng.integers(1, slots, count)
    score = rng.random(images)

    def boxes(values: np.ndarray) -> pa.Array:
        return pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), 4)

    issues = pa.table(
        {
            "file_name": names,
            "given_label": np.array(classes, object)[label],
            "predicted_label": np.array(classes, object)[label],
            "predicted_score": score,
            "is_label_issue": np.zeros(images, bool),
            "label_score": score,
            "is_background_issue": np.zeros(images, bool),
            "background_score": score,
            "is_unreadable_issue": np.zeros(images, bool),
            "unreadable_reason": pa.nulls(images, pa.string()),
            "is_near_duplicate_issue": np.zeros(images, bool),
            "winner_slot": slot[::REGIONS],
            "d_score": score,
            "r_score": score,
            "a_score": score,
            "roi_weight": score,
            "clean_box": boxes(box[::REGIONS]),
        }
    )
    regions = pa.table(
        {
            "file_name": np.repeat(names, REGIONS),
            "region": np.tile(np.arange(REGIONS, dtype=np.int32), images),
            "box": boxes(box),
            "roi_weight": rng.random(count).astype(np.float32),
            "winner_slot": slot.astype(np.int32),
            **{name: rng.random(count).astype(np.float32) for name in ("d_score", "r_score", "a_score", "similarity")},
        }
    )
    path.mkdir(parents=True)
    write_tables(path, issues, regions)
    config = Config().with_settings({"method": "somnet", "somnet.memory.side": side})
    write_text(path / CONFIG, config.to_toml())
    where = str(data or path / "gone")
    write_json(path / DATA, {"path": where, "classes": list(classes), "images": images, "fingerprint": "made-up"})
    generator = torch.Generator().manual_seed(0)
    tables = {
        "keys": F.normalize(torch.randn(slots, 8, generator=generator), dim=1),
        "d": torch.rand(slots, len(classes), generator=generator) ** 8,
        "r": torch.rand(len(classes), slots, generator=generator) ** 8,
    }
    save_checkpoint(path / LAST, {f"method.memory.{name}": table for name, table in tables.items()}, {})
    return Run(path)
