"""Data sets on disk: plain folders and manifests, told apart by what is there."""

from pathlib import Path

from somnet.data.index import Index
from somnet.data.sources.folder import read_folder
from somnet.data.sources.manifest import find_manifest, read_manifest
from somnet.errors import DataError

HELP = (
    "give a folder with one sub-folder of images a class, the same under train/ and test/, or a metadata.csv, .jsonl "
    "or .parquet manifest with the columns file_name and label"
)


def open_source(data: Path) -> Index:
    """List the images of a data set. Nothing is opened yet: files that are no images come to light when scanned."""
    if not data.exists():
        raise DataError(f"{data} does not exist: {HELP}")
    if data.is_file():
        index = read_manifest(data)
    elif manifest := find_manifest(data):
        index = read_manifest(manifest)
    else:
        index = read_folder(data)
    if len(index) == 0:
        raise DataError(f"{data} holds no images: {HELP}")
    return index
