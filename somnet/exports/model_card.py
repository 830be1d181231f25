"""What is said about an exported model in the README.md beside it."""

import json

from somnet.exports.preprocessing import reading
from somnet.nn.backbones import licence_of
from somnet.runs.run import Run
from somnet.system.version import VERSION

_TIMM = """\
```python
import numpy as np, timm, torch
from PIL import Image, ImageOps

{reading}

model = timm.create_model("local-dir:PATH/OF/THIS/FOLDER", pretrained=True).eval()
transform = timm.data.create_transform(**timm.data.resolve_model_data_config(model))
with torch.no_grad():
    probabilities = model(transform(read("photo.jpg"))[None]).softmax(dim=1)[0]
print(model.pretrained_cfg["label_names"][int(probabilities.argmax())])
```

`config.json` makes timm squash the whole image to {side} x {side} pixels, bilinear, as somnet does. What it cannot
express is in `read`: photos are turned upright, what is transparent is laid over white, 16-bit grey is scaled, and
large files are decoded at a reduced size."""

_ONNX = """\
```python
import json
import numpy as np, onnxruntime
from PIL import Image, ImageOps

{reading}

session = onnxruntime.InferenceSession("model.onnx")
labels = json.loads(session.get_modelmeta().custom_metadata_map["labels"])
image = read("photo.jpg").resize(({side}, {side}), Image.BILINEAR)
pixels = np.asarray(image).transpose(2, 0, 1)[None]  # uint8 (batch, 3, {side}, {side})
[logits] = session.run(["logits"], {{"pixels": pixels}})
print(labels[logits[0].argmax()])
```

The input is the pixels themselves, uint8 RGB from 0 to 255; the normalisation is part of the graph. Any batch size
works. The softmax of the logits gives probabilities. The metadata of the file holds `labels` and `preprocessing` as
JSON, `architecture`, `license` and `somnet_version`; `preprocessing` tells each step from file to pixels."""

_USE = {"timm": _TIMM, "onnx": _ONNX}


def model_card(run: Run, format: str) -> str:
    """Classes, method, data, accuracy, how to load it, and the licence of the weights, as Markdown."""
    model, summary = run.config.model, run.summary
    data, test = summary["data"], summary["test"]
    accuracy = (
        f"top-1 {100 * test['top1']:.2f} %, top-5 {100 * test['top5']:.2f} % on {test['n']} held-out images"
        if test["n"]
        else "not measured: there were no held-out images"
    )
    trained = "its last stage and the classifier" if model.freeze == "trunk" else "all of it"
    names = json.dumps(run.classes, indent=2, ensure_ascii=False)  # no line of JSON can end the fence
    return f"""\
# An image classifier of {len(run.classes)} classes

| | |
|---|---|
| network | {model.name} at {model.imgsz} x {model.imgsz} pixels; trained: {trained} |
| method | {summary["method"]}, seed {summary["seed"]}, config {summary["config_hash"]} |
| training images | {data["train"]}, with noisy labels from the web; {data["unreadable"]} more were unreadable |
| accuracy | {accuracy} |
| licence of the weights | {_licence(run)} |
| written by | somnet {VERSION} |

This is the network alone. Whatever else the method used, such as a memory, was needed for training only.

## Use

{_USE[format].format(side=model.imgsz, reading=reading(model.imgsz))}

## Classes

In the order of the logits:

```json
{names}
```
"""


def _licence(run: Run) -> str:
    start = licence_of(run.config.model)
    if not run.config.model.pretrained:
        return "yours: they were trained from random numbers; mind the rights in the training images"
    return f"{start}, of the pretrained weights that training began with; mind the rights in the training images, too"
