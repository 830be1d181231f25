"""Sound files made bad in a drawn way, the same for the same number."""

import io
import json
import random
import struct
import zlib
from functools import cache

import numpy as np
from PIL import Image

FORMATS = ("JPEG", "PNG", "GIF", "WEBP", "BMP", "TIFF", "PPM")


def mutated(data: bytes, rng: random.Random) -> bytes:
    """Cut, flip bits, overwrite, repeat, drop, or take over the beginning of something else."""
    changed = bytearray(data)
    kind = rng.randrange(6)
    if kind == 0:
        del changed[rng.randrange(len(changed)) :]
    elif kind == 1:
        for _ in range(rng.randint(1, 20)):
            changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    elif kind == 2:  # the header, with the numbers that break parsers
        start = rng.randrange(min(64, len(changed)))
        changed[start : start + 4] = rng.choice([b"\0" * 4, b"\xff" * 4, b"\x7f\xff\xff\xff", rng.randbytes(4)])
    elif kind == 3:
        start, size = rng.randrange(len(changed)), rng.randint(1, 200)
        changed[start : start + size] = rng.choice([b"", rng.randbytes(size), bytes(changed[start : start + size]) * 3])
    elif kind == 4:
        changed[: rng.randint(1, 16)] = rng.randbytes(rng.randint(0, 16))
    else:
        changed = bytearray(rng.randbytes(rng.randint(0, 400)))
    return bytes(changed)


def picture_file(rng: random.Random) -> bytes:
    """A small sound picture, in any of the formats."""
    pixels = np.linspace(0, 255, 64 * 48 * 3).astype(np.uint8).reshape(48, 64, 3)  # (H, W, 3)
    left, top = rng.randrange(40), rng.randrange(24)
    pixels[top : top + 20, left : left + 20] = rng.randrange(256)
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, rng.choice(FORMATS))
    return stream.getvalue()


def png(width: int, height: int, chunks: list[tuple[bytes, bytes]], colour: int = 2) -> bytes:
    """A PNG of these chunks between its header and its end."""
    header = (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, colour, 0, 0, 0))
    parts = [header, *chunks, (b"IEND", b"")]
    framed = (struct.pack(">I", len(b)) + kind + b + struct.pack(">I", zlib.crc32(kind + b)) for kind, b in parts)
    return b"\x89PNG\r\n\x1a\n" + b"".join(framed)


@cache
def bombs() -> dict[str, bytes]:
    """Small files that ask for much memory."""
    rows = zlib.compress(bytes((1 + 4 * 9_900) * 9_900), 9)  # 98 million pixels, just allowed
    zeros = zlib.compress(bytes(300_000_000), 9)
    small = zlib.compress(bytes((1 + 3 * 64) * 64))
    gif = b"GIF89a" + struct.pack("<HHBBB", 65535, 65535, 0x80, 0, 0) + bytes(6)
    gif += b"," + struct.pack("<HHHHB", 0, 0, 65535, 65535, 0) + b"\x02\x02\x4c\x01\0;"
    tiff_tags = [(256, 4, 1, 60_000), (257, 4, 1, 60_000), (258, 3, 1, 8), (259, 3, 1, 1), (262, 3, 1, 1)]
    tiff_tags += [(273, 4, 2**31, 8), (278, 4, 1, 60_000), (279, 4, 2**31, 8)]
    tiff = b"II*\0\x08\0\0\0" + struct.pack("<H", len(tiff_tags))
    tiff += b"".join(struct.pack("<HHII", *tag) for tag in tiff_tags) + bytes(4)
    return {
        "claims.png": png(100_000, 100_000, [(b"IDAT", zlib.compress(bytes(64)))]),
        "allowed.png": png(9_900, 9_900, [(b"IDAT", rows)], colour=6),
        "text.png": png(64, 64, [(b"zTXt", b"a\0\0" + zeros), (b"IDAT", small)]),
        "profile.png": png(64, 64, [(b"iCCP", b"a\0\0" + zeros), (b"IDAT", small)]),
        "pixels.png": png(64, 64, [(b"IDAT", zeros)]),
        "claims.gif": gif,
        "claims.tif": tiff,
        "claims.ppm": b"P6 99999 99999 255\n" + bytes(100),
        "claims.bmp": b"BM"
        + struct.pack("<IIIIiiHHIIiiII", 0, 0, 54, 40, 2**31 - 1, 2**31 - 1, 1, 24, 0, 0, 0, 0, 0, 0),
    }


def nested(depth: int) -> str:
    """JSON or TOML values that lie deep."""
    return "[" * depth + "]" * depth


def safetensors(header: object, body: bytes = b"", size: int | None = None) -> bytes:
    """A file of this header, which may lie about its size."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if size is None else size) + text + body
