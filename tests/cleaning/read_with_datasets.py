"""What Hugging Face's `datasets` finds in Parquet files that somnet wrote; and the same saved in its own two ways.

python -I read_with_datasets.py DATA WORK: the answer goes to WORK/found.json, its copies to WORK/saved, WORK/parquet.
"""

import json
import sys
from pathlib import Path

import datasets

data, work = sys.argv[1], Path(sys.argv[2])
loaded = datasets.load_dataset(data, cache_dir=str(work / "cache"))
found = {
    split: {
        "names": part.features["label"].names,
        "labels": part["label"][:],
        "sizes": [list(row["image"].size) for row in part],
        "scores": part["label_score"][:],
    }
    for split, part in loaded.items()
}
(work / "found.json").write_text(json.dumps(found), encoding="utf-8")
loaded.save_to_disk(str(work / "saved"))
(work / "parquet").mkdir()
for split, part in loaded.items():
    part.to_parquet(str(work / "parquet" / f"{split}.parquet"))
