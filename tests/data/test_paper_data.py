"""The paper's data sets in miniature, from the lists to the figures of its table."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from somnet.runs.run import Run


def flags(tiny: Any) -> list[Any]:
    return ["--method", "plain", "--epochs", 1, "--workers", 0, *tiny.flags()]


def test_food_is_trained_on_the_web_and_tested_on_the_clean_set(
    tmp_path: Path, tiny: Any, photos: Any, cli: Callable[..., Any]
) -> None:
    web, clean = tmp_path / "food/Food-101N_release", tmp_path / "food/food-101"
    for root in (web, clean):
        (root / "meta").mkdir(parents=True)
    listed, verified, test = ["class_name/key"], ["class_name/key\tverification_label"], []
    for label, name in enumerate(("apple_pie", "waffles")):
        for root in (web, clean):
            (root / "images" / name).mkdir(parents=True)
        for number in range(5):
            photos.picture(label, number).save(web / "images" / name / f"{number}.jpg")
            listed.append(f"{name}/{number}.jpg")
            verified += [f"{name}/{number}.jpg\t{number % 2}"] if number < 4 else []
        photos.picture(label, 6).save(clean / "images" / name / "100.jpg")
        test.append(f"{name}/100")
    listed.append("waffles/lost.jpg")
    for file, lines in {
        web / "meta/classes.txt": ["class_name", "apple_pie", "waffles"],
        web / "meta/imagelist.tsv": listed,
        web / "meta/verified_train.tsv": verified[:5],
        web / "meta/verified_val.tsv": verified[:1] + verified[5:],
        clean / "meta/test.txt": test,
    }.items():
        file.write_text("\n".join(lines) + "\n")
    done = cli("train", tmp_path / "food", "--out", tmp_path / "run", *flags(tiny))
    assert done.code == 0, done.err
    summary = Run(tmp_path / "run").summary
    assert summary["data"] == {"classes": 2, "train": 10, "test": 2, "unreadable": 1}
    assert summary["test"]["n"] == 2
    assert 0 <= summary["noise"]["auroc"] <= 1
    lost = [row for row in Run(tmp_path / "run").scores().to_pylist() if row["is_unreadable_issue"]]
    assert [row["file_name"] for row in lost] == ["Food-101N_release/images/waffles/lost.jpg"]


def test_mini_webvision_is_tested_on_both_validation_sets(
    tmp_path: Path, tiny: Any, photos: Any, cli: Callable[..., Any]
) -> None:
    web, imagenet = tmp_path / "webvision", tmp_path / "imagenet"
    wnids = ("n01440764", "n01443537", "n01484850")
    for folder in (web / "info", web / "val_images_256", imagenet / "val", *(web / f"google/q{q:04d}" for q in (1, 2))):
        folder.mkdir(parents=True)
    train, val, labels = [], [], []
    for label in (0, 1):
        for number in range(4):
            name = f"google/q{label + 1:04d}/{number}.jpg"
            photos.picture(label, number).save(web / name)
            train.append(f"{name} {label}")
        photos.picture(label, 5).save(web / f"val_images_256/val{label}.jpg")
        val.append(f"val{label}.jpg {label}")
    for number, label in enumerate((1, 0, 1, 2, 999), start=1):  # a class without images, and one of the other 950
        photos.picture(label, number).save(imagenet / f"val/ILSVRC2012_val_{number:08d}.JPEG", format="JPEG")
        labels.append(f"ILSVRC2012_val_{number:08d}.JPEG {label}")
    for file, lines in {
        web / "info/synsets.txt": [f"{wnid} fish" for wnid in wnids],
        web / "info/train_filelist_google.txt": train,
        web / "info/val_filelist.txt": val,
        imagenet / "val.txt": labels,
    }.items():
        file.write_text("\n".join(lines) + "\n")
    done = cli("train", f"mini-webvision:{web}", "--out", tmp_path / "run", *flags(tiny))
    assert done.code == 0, done.err
    run = Run(tmp_path / "run")
    assert run.data["path"] == f"mini-webvision:{web}"
    assert (run.classes, run.summary["test"]["n"]) == (wnids, 2)
    assert run.evaluate(imagenet, workers=0).n == 4
    inside = cli("train", f"mini-webvision:{web}", "--out", web / "run", *flags(tiny))
    assert inside.code == 2
    assert not (web / "run").exists()
