"""Tables of the cache: Parquet behind a hash of its bytes, so that one changed bit is noticed as it is read."""

import hashlib
import logging
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from somnet.system.files import atomic_path

log = logging.getLogger("somnet")

TABLE = ".table"  # how the name of such a file ends
HASH_BYTES = 16


def write_checked(file: Path, table: pa.Table) -> None:
    """Write a table whole or not at all."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    content = sink.getvalue().to_pybytes()
    with atomic_path(file) as temporary, temporary.open("wb") as stream:
        stream.write(_hash(content))
        stream.write(content)


def read_checked(file: Path, schema: pa.Schema) -> pa.Table:
    """A table as it was written; an empty one where there is none. A damaged one is deleted and told."""
    try:
        content = file.read_bytes()
    except FileNotFoundError:
        return schema.empty_table()
    except OSError as error:
        return _dropped(file, schema, error)
    if not is_sound(content):
        return _dropped(file, schema, ValueError("its checksum does not match"))
    try:
        return pq.read_table(pa.BufferReader(content[HASH_BYTES:])).select(schema.names).cast(schema)
    except (OSError, KeyError, ValueError, pa.ArrowException) as error:  # of another version
        return _dropped(file, schema, error)


def is_sound(content: bytes) -> bool:
    """Whether the bytes of a file are those that were written."""
    return content[:HASH_BYTES] == _hash(content[HASH_BYTES:])


def _hash(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=HASH_BYTES).digest()


def _dropped(file: Path, schema: pa.Schema, error: Exception) -> pa.Table:
    log.warning("the cache file %s is damaged (%s): it is computed again", file, error)
    try:
        file.unlink(missing_ok=True)
    except OSError:  # a cache that one may only read
        log.warning("%s cannot be deleted: delete it by hand", file)
    return schema.empty_table()
