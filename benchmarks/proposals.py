"""Speed and recall of the object proposals at several sizes of the edge map, as a Markdown table.

    python benchmarks/proposals.py [--photos DIR --scenes DIR] [--images 200]

Photos are pasted into scenes of 500 x 375 pixels, the longer side of a photo being 35-60 % of that of the
scene. With no folders, textured shapes are drawn on textured backgrounds, so that it runs anywhere.
"""

import argparse
import io
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from somnet.data.decode import read_picture
from somnet.data.edgeboxes import edge_boxes

WIDTH, HEIGHT = 500, 375
SHARES = (0.35, 0.60)
EDGE_SIDES = (96, 128, 192, 320, 500)
MAX_BOXES = 20
MIN_AREA = 0.03
CORES = 2

Box = tuple[int, int, int, int]
Example = tuple[bytes, Box]  # a JPEG file and where the object is


def main() -> None:
    arguments = parse_arguments()
    random = np.random.default_rng(0)
    if arguments.photos:
        examples = list(pasted_photos(arguments.photos, arguments.scenes, arguments.images, random))
    else:
        examples = list(drawn_shapes(arguments.images, random))
    worst = {"noise": noise(random), "checkerboard": checkerboard(), "text": text_page()}

    print(f"{len(examples)} images of {WIDTH} x {HEIGHT}, {MAX_BOXES} boxes, decoding included\n")
    header = [
        "edge side",
        f"images/s, {CORES} processes",
        "ms, one core",
        "ms, slowest",
        "recall at IoU 0.5",
        "recall at IoU 0.7",
        *(f"{name}, ms" for name in worst),
    ]
    print("| " + " | ".join(header) + " |")
    print("|" + " ---: |" * len(header))
    with ProcessPoolExecutor(CORES, get_context("spawn"), use_one_thread) as pool:
        list(pool.map(time.sleep, [1.0] * CORES))  # both processes start before the clock does
        for edge_side in EDGE_SIDES:
            print(row(edge_side, examples, worst, pool), flush=True)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Speed and recall of the object proposals.")
    parser.add_argument("--photos", type=Path, help="folder of photos to paste, searched in depth")
    parser.add_argument("--scenes", type=Path, help="folder of scenes to paste into, searched in depth")
    parser.add_argument("--images", type=int, default=200)
    arguments = parser.parse_args()
    if bool(arguments.photos) != bool(arguments.scenes):
        parser.error("--photos and --scenes go together")
    return arguments


def use_one_thread() -> None:
    """A process per core already uses them all."""
    cv2.setNumThreads(1)


def row(edge_side: int, examples: list[Example], worst: dict[str, bytes], pool: ProcessPoolExecutor) -> str:
    files = [file for file, _ in examples]
    sides = [edge_side] * len(files)
    start = time.perf_counter()
    proposals = list(pool.map(propose, files, sides, chunksize=4))
    rate = len(files) / (time.perf_counter() - start)
    # One process at a time, so that the other core is free.
    costs = list(pool.submit(costs_of, files, edge_side).result())
    worst_costs = list(pool.submit(costs_of, list(worst.values()), edge_side).result())
    best = np.array([best_overlap(found, box) for found, (_, box) in zip(proposals, examples, strict=True)])
    cells = [
        f"{edge_side}",
        f"{rate:.0f}",
        f"{np.mean(costs):.1f}",
        f"{np.max(costs):.1f}",
        f"{np.mean(best >= 0.5):.3f}",
        f"{np.mean(best >= 0.7):.3f}",
        *(f"{cost:.1f}" for cost in worst_costs),
    ]
    return "| " + " | ".join(cells) + " |"


def propose(file: bytes, edge_side: int) -> NDArray[np.float32]:
    image = read_picture(io.BytesIO(file), at_least=edge_side).image
    found = edge_boxes(image, max_boxes=MAX_BOXES, min_area=MIN_AREA, edge_side=edge_side)  # (n, 5)
    found[:, :4] *= np.array([WIDTH / image.width, HEIGHT / image.height] * 2, np.float32)
    return found


def costs_of(files: list[bytes], edge_side: int) -> list[float]:
    """Milliseconds of processor time for each file."""
    costs = []
    for file in files:
        start = time.process_time()
        propose(file, edge_side)
        costs.append((time.process_time() - start) * 1000)
    return costs


def best_overlap(found: NDArray[np.float32], box: Box) -> float:
    x1, y1, x2, y2 = found[:, :4].T  # each (n,)
    across = np.clip(np.minimum(x2, box[2]) - np.maximum(x1, box[0]), 0, None)  # (n,)
    down = np.clip(np.minimum(y2, box[3]) - np.maximum(y1, box[1]), 0, None)  # (n,)
    union = (x2 - x1) * (y2 - y1) + (box[2] - box[0]) * (box[3] - box[1]) - across * down  # (n,)
    return float(np.max(across * down / union, initial=0.0))


def pasted_photos(photos: Path, scenes: Path, count: int, random: np.random.Generator) -> Iterator[Example]:
    photo_files, scene_files = image_files(photos), image_files(scenes)
    for _ in range(count):
        scene = read_picture(scene_files[random.integers(len(scene_files))]).image.resize((WIDTH, HEIGHT))
        photo = read_picture(photo_files[random.integers(len(photo_files))]).image
        scale = min(random.uniform(*SHARES) * WIDTH / max(photo.size), HEIGHT / photo.height)
        photo = photo.resize((max(1, round(photo.width * scale)), max(1, round(photo.height * scale))))
        box = random_place(*photo.size, random)
        scene.paste(photo, box)
        yield as_jpeg(scene), box


def image_files(folder: Path) -> list[Path]:
    endings = {".jpg", ".jpeg", ".png", ".webp"}
    files = sorted(path for path in folder.rglob("*") if path.suffix.lower() in endings)
    if not files:
        raise SystemExit(f"{folder} contains no images")
    return files


def drawn_shapes(count: int, random: np.random.Generator) -> Iterator[Example]:
    for _ in range(count):
        scene, cover = texture(random), texture(random)
        width, height = (int(random.uniform(*SHARES) * side) for side in (WIDTH, HEIGHT))
        box = random_place(width, height, random)
        mask = Image.new("L", (WIDTH, HEIGHT))
        pen = ImageDraw.Draw(mask)
        (pen.ellipse if random.random() < 0.5 else pen.rectangle)(box, fill=255)
        scene.paste(cover, mask=mask)
        yield as_jpeg(scene), box


def texture(random: np.random.Generator) -> Image.Image:
    """A random colour with random blotches of several sizes and fine grain."""
    grey = np.zeros((HEIGHT, WIDTH))  # (H, W)
    for cell in (3, 8, 40):
        coarse = random.normal(size=(HEIGHT // cell + 1, WIDTH // cell + 1)).astype(np.float32)
        grey += random.uniform(2, 20) * cv2.resize(coarse, (WIDTH, HEIGHT), interpolation=cv2.INTER_CUBIC)
    colour = random.uniform(30, 225, size=3)
    return Image.fromarray((grey[..., None] + colour).clip(0, 255).astype(np.uint8))


def random_place(width: int, height: int, random: np.random.Generator) -> Box:
    left, top = int(random.integers(WIDTH - width + 1)), int(random.integers(HEIGHT - height + 1))
    return left, top, left + width, top + height


def noise(random: np.random.Generator) -> bytes:
    return as_jpeg(Image.fromarray(random.integers(0, 256, (HEIGHT, WIDTH, 3), dtype=np.uint8)))


def checkerboard() -> bytes:
    rows, columns = np.indices((HEIGHT, WIDTH)) // 20  # (H, W), (H, W)
    return as_jpeg(Image.fromarray(((rows + columns) % 2 * 255).astype(np.uint8)).convert("RGB"))


def text_page() -> bytes:
    page = Image.new("RGB", (WIDTH, HEIGHT), "white")
    for y in range(0, HEIGHT, 12):
        ImageDraw.Draw(page).text((2, y), "the quick brown fox jumps over the lazy dog " * 3, fill="black")
    return as_jpeg(page)


def as_jpeg(image: Image.Image) -> bytes:
    stream = io.BytesIO()
    image.save(stream, "JPEG", quality=90)
    return stream.getvalue()


if __name__ == "__main__":
    main()
