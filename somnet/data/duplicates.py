"""Pictures that occur more than once: equal files, and the same picture saved again, resized or slightly cropped.

A picture's hash is the signs of its lowest frequencies. Two pictures are near duplicates if few of the signs differ.
"""

from collections.abc import Iterator

import cv2
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from PIL import Image

SIDE = 48  # pixels of the small grey picture whose frequencies are taken
BLOCK = 12  # frequencies each way; all but the mean give a bit
HASH_BYTES = BLOCK * BLOCK // 8
MOST_DIFFERENT = 22  # bits of 143: of 1.6 million pairs of different photos none is nearer but shots of one garment
LEAST_TEXTURE = 3.0  # typical size of a frequency, in grey levels; photos have 7 and more, flat pictures below 1
BANDS = 64  # looks at the hashes, each at a choice of bits that must be equal: 64 find 97 of 100 near duplicates
BAND_BITS = 20
COPIES_AT_ONCE = 256  # of a group, that are compared with all others of it
NEIGHBOURS = 32  # pictures that a picture is compared with in a look: a crowd of look-alikes costs no more


def picture_hash(image: Image.Image) -> bytes | None:
    """Signs of the low frequencies of an upright picture; None where there is no texture to tell pictures apart."""
    grey = cv2.resize(np.asarray(image.convert("L"), np.float32), (SIDE, SIDE), interpolation=cv2.INTER_AREA)
    waves = cv2.dct(grey)[:BLOCK, :BLOCK].ravel()  # (BLOCK * BLOCK,)
    waves[0] = 0  # the mean says how bright it is, not what it shows
    if np.median(np.abs(waves)) < LEAST_TEXTURE:
        return None
    return np.packbits(waves > 0).tobytes()


def group_duplicates(keys: pa.Array, hashes: pa.Array) -> NDArray[np.int64]:
    """Group of each image (n,), counted in the order of first members; -1 for an image without a duplicate.

    Images are in one group if their content key is equal, if their hashes are near, or through others between them.
    """
    first = np.arange(len(keys))  # (n,) the first image that shows the same
    for pairs in (_equal(keys), _equal(hashes), _near(hashes)):
        first = _merge(first, pairs)
    shared = np.bincount(first, minlength=1)[first] > 1
    groups = np.full(len(keys), -1, np.int64)
    groups[shared] = np.unique(first[shared], return_inverse=True)[1]
    return groups


def later_members(groups: NDArray[np.int64]) -> NDArray[np.bool_]:
    """(n,) True for every member of a group but the first."""
    later = groups >= 0
    later[np.unique(groups, return_index=True)[1]] = False
    return later


def nearest_copies(
    groups: NDArray[np.int64], keys: pa.Array, hashes: pa.Array, among: NDArray[np.bool_]
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """How far each image (n,) is from the most similar other one of its group, and the row of that one.

    Only images `among` (n,) some are compared with. The difference is the share of bits of the hashes, 0 for files of
    equal content; 1, and the row -1, where no such image shows the same.
    """
    difference, nearest = np.ones(len(groups), np.float32), np.full(len(groups), -1)
    order = np.argsort(groups, kind="stable")
    for members in np.split(order, np.flatnonzero(np.diff(groups[order])) + 1):
        others = members[among[members]]
        if groups[members[0]] < 0 or len(others) == 0:
            continue
        own_keys, own_hashes = (_as_numbers(column.take(pa.array(members))) for column in (keys, hashes))
        for start in range(0, len(members), COPIES_AT_ONCE):
            rows = slice(start, start + COPIES_AT_ONCE)
            bits = _ONES[own_hashes[rows, None] ^ own_hashes[None, among[members]]].sum(axis=2)  # (b, m)
            share = bits / (BLOCK * BLOCK - 1)
            share[(own_keys[rows, None] == own_keys[None, among[members]]).all(axis=2)] = 0.0
            share[members[rows, None] == others] = 2.0  # itself
            best = share.argmin(axis=1)  # (b,)
            found = share[np.arange(len(best)), best]
            shown = found <= 1.0
            difference[members[rows][shown]], nearest[members[rows][shown]] = found[shown], others[best][shown]
    return difference, nearest


def _as_numbers(column: pa.Array) -> NDArray[np.uint16]:
    """Values of an even number of bytes each, as rows of numbers (m, w); zeros for one that is missing."""
    width = max((len(value) for value in column.drop_null().to_pylist()), default=2)
    values = (value or bytes(width) for value in column.to_pylist())
    return np.frombuffer(b"".join(values), np.uint16).reshape(len(column), -1)


def _equal(values: pa.Array) -> NDArray[np.int64]:
    """(2, E) pairs of rows with the same value: the first row that has it, and each other."""
    rows = np.flatnonzero(values.is_valid())
    number = values.drop_null().dictionary_encode().indices.to_numpy()  # equal for equal values
    first = rows[np.unique(number, return_index=True)[1]][number]
    return np.stack([first, rows])[:, first != rows]


def _merge(first: NDArray[np.int64], pairs: NDArray[np.int64]) -> NDArray[np.int64]:
    """The first row (n,) that each row is linked to, by the links it had and by pairs (2, E) of rows."""
    from scipy.sparse import coo_array  # here, as commands that group nothing need not wait for it
    from scipy.sparse.csgraph import connected_components

    rows = np.arange(len(first))
    one, other = np.concatenate([np.stack([rows, first]), pairs], axis=1)
    links = coo_array((np.ones(len(one), bool), (one, other)), shape=(len(rows), len(rows)))
    component = connected_components(links, directed=False)[1]  # (n,)
    return np.asarray(np.unique(component, return_index=True)[1][component], np.int64)


def _near(hashes: pa.Array) -> NDArray[np.int64]:
    """(2, E) pairs of rows with different but near hashes; of rows with the same hash only the first is looked at."""
    encoded = hashes.drop_null().dictionary_encode()
    if len(encoded.dictionary) < 2:
        return np.empty((2, 0), np.int64)
    rows = np.flatnonzero(hashes.is_valid())[np.unique(encoded.indices, return_index=True)[1]]  # (u,)
    packed = np.frombuffer(b"".join(encoded.dictionary.to_pylist()), np.uint8).reshape(-1, HASH_BYTES)
    words = packed.view(np.uint16)  # (u, HASH_BYTES / 2)
    first = np.arange(len(rows))
    rng = np.random.default_rng(0)
    for _ in range(BANDS):
        band = _band(packed, rng.choice(np.arange(1, BLOCK * BLOCK), BAND_BITS, replace=False))
        pairs = [np.empty((2, 0), np.int64)]
        for one, other in _candidates(band):
            new = first[one] != first[other]
            one, other = one[new], other[new]
            different = _ONES[words[one] ^ words[other]].sum(axis=1)
            pairs.append(np.stack([one, other])[:, different <= MOST_DIFFERENT])
        first = _merge(first, np.concatenate(pairs, axis=1))
    return np.stack([rows[first], rows])


def _band(packed: NDArray[np.uint8], chosen: NDArray[np.int64]) -> NDArray[np.uint32]:
    """Some bits of each hash, as a number (u,)."""
    band = np.zeros(len(packed), np.uint32)
    for bit in chosen:
        band = band << np.uint32(1) | (packed[:, bit // 8] >> np.uint8(7 - bit % 8) & np.uint8(1))
    return band


def _candidates(band: NDArray[np.uint32]) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Pairs of rows that are equal in a band."""
    order = np.argsort(band, kind="stable")
    band = band[order]
    for step in range(1, min(NEIGHBOURS + 1, len(band))):
        same = np.flatnonzero(band[step:] == band[:-step])
        if len(same) == 0:
            return
        yield order[same], order[same + step]


_WORDS = np.arange(2**16, dtype=np.uint16)
_ONES = np.unpackbits(_WORDS.view(np.uint8).reshape(-1, 2), axis=1).sum(axis=1, dtype=np.uint8)  # bits set in each word
