"""Text in figures: one line, in a font that has its letters, no longer than its place."""

from functools import lru_cache

from PIL import ImageFont


def one_line(text: str) -> str:
    """One line without control characters, which would move, turn or break it."""
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text[:400]).split())


def font_for(text: str, size: int) -> ImageFont.FreeTypeFont:
    """The first font that lacks the fewest letters."""
    return min(_fonts(size), key=lambda font: sum(_lacks(font, letter) for letter in set(text) - {" "}))


@lru_cache
def _fonts(size: int) -> tuple[ImageFont.FreeTypeFont, ...]:
    """Pillow's own font, then widespread ones that know more letters, as far as they are installed."""
    own = ImageFont.load_default(size)
    assert isinstance(own, ImageFont.FreeTypeFont)
    fonts = [own]
    for name in ("DejaVuSans.ttf", "NotoSansCJK-Regular.ttc", "Arial Unicode.ttf", "arial.ttf", "msyh.ttc"):
        try:
            fonts.append(ImageFont.truetype(name, size))
        except OSError:
            continue
    return tuple(fonts)


@lru_cache(4096)
def _lacks(font: ImageFont.FreeTypeFont, letter: str) -> bool:
    """Whether a font draws a letter as one that it does not know."""
    unknown = font.getmask("\uffff")
    mask = font.getmask(letter)
    return mask.size == unknown.size and bytes(mask) == bytes(unknown)


def shortened(text: str, font: ImageFont.FreeTypeFont, width: float) -> str:
    """As much of the text as fits, with an ellipsis where something is missing."""
    if font.getlength(text) <= width:
        return text
    kept = len(text)
    while kept > 0 and font.getlength(text[:kept].rstrip() + "…") > width:
        kept -= 1
    return text[:kept].rstrip() + "…"
