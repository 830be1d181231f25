"""What FiftyOne and Label Studio's own library find in a folder that somnet exported; they run it, not somnet.

python -I read_back.py CLEANED WORK: the answer goes to WORK/found.json, since the libraries print.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any


def read_with_fiftyone(cleaned: Path) -> dict[str, Any]:
    """The samples, with boxes in pixels of the images as FiftyOne sees them: x, y, width, height."""
    import fiftyone

    dataset = fiftyone.Dataset.from_dir(
        str(cleaned / "fiftyone"), dataset_type=fiftyone.types.FiftyOneImageDetectionDataset, compute_metadata=True
    )
    samples = []
    for sample in dataset:
        (detection,) = sample.ground_truth.detections
        x, y, width, height = detection.bounding_box
        wide, high = sample.metadata.width, sample.metadata.height
        samples.append(
            {
                "file": sample.filepath,
                "label": detection.label,
                "box": [x * wide, y * high, width * wide, height * high],
                "score": detection.confidence,
            }
        )
    return {"media": dataset.media_type, "classes": dataset.default_classes, "samples": samples}


def read_with_label_studio(cleaned: Path, work: Path) -> dict[str, Any]:
    """What it objects to, and the tasks as its converters give them once somebody accepts the predictions."""
    os.environ["LOCAL_FILES_DOCUMENT_ROOT"] = str(cleaned)  # read while the library is loaded
    from label_studio_sdk.converter import Converter
    from label_studio_sdk.label_interface import LabelInterface

    config = (cleaned / "label-studio/labels.xml").read_text(encoding="utf-8")
    interface = LabelInterface(config)
    interface.validate()
    tasks = json.loads((cleaned / "label-studio/tasks.json").read_text(encoding="utf-8"))
    errors = [
        error
        for task in tasks
        for prediction in task["predictions"]
        for error in interface.validate_prediction(prediction, return_errors=True)
    ]
    errors += [f"no data: {task}" for task in tasks if not interface.validate_task({"data": task["data"]})]
    accepted = [{**task, "id": i, "annotations": task["predictions"]} for i, task in enumerate(tasks)]
    (work / "accepted.json").write_text(json.dumps(accepted), encoding="utf-8")
    converter = Converter(config, str(work), download_resources=False)
    for name in ("COCO", "VOC", "JSON_MIN"):
        converter.convert(str(work / "accepted.json"), str(work / name), name, is_dir=False)
    coco = json.loads((work / "COCO/result.json").read_text(encoding="utf-8"))
    files = {image["id"]: str(work / "COCO" / image["file_name"]) for image in coco["images"]}
    names = {category["id"]: category["name"] for category in coco["categories"]}
    objects = [
        {"file": files[found["image_id"]], "label": names[found["category_id"]], "box": found["bbox"]}
        for found in coco["annotations"]
    ]
    accepted_rows = json.loads((work / "JSON_MIN/result.json").read_text(encoding="utf-8"))
    return {
        "errors": errors,
        "classes": {control.name: control.labels for control in interface.controls},
        "objects": objects,
        "choices": [row["class"] for row in accepted_rows],
        "voc": [file.stem for file in (work / "VOC/Annotations").iterdir()],
    }


if __name__ == "__main__":
    cleaned, work = Path(sys.argv[1]), Path(sys.argv[2])
    found = {"fiftyone": read_with_fiftyone(cleaned), "label-studio": read_with_label_studio(cleaned, work)}
    (work / "found.json").write_text(json.dumps(found), encoding="utf-8")
