"""How an image file becomes a network's input, told so that other programs can do the same to the last pixel."""

from typing import Any

from somnet.data.decode import BACKGROUND, DEEP_WHITES, LARGE_PIXELS
from somnet.nn.backbones import Network


def preprocessing(network: Network, side: int) -> dict[str, Any]:
    """Sizes and colours for programs, and the steps in their order for the people who write them."""
    return {
        "size": [side, side],
        "layout": "NCHW",
        "channels": "RGB",
        "dtype": "uint8",
        "range": [0, 255],
        "mean": network.mean.flatten().tolist(),
        "std": network.std.flatten().tolist(),
        "normalise": "done inside the model: (pixel / 255 - mean) / std",
        "jpeg_scales": [8, 4, 2, 1],
        "deep_whites": list(DEEP_WHITES),
        "background": list(BACKGROUND),
        "large_pixels": LARGE_PIXELS,
        "resize": {"filter": "bilinear", "antialias": True, "keep_aspect_ratio": False},
        "colour_profiles": "ignored",
        "order": ["decode", "depth", "colour", "upright", "reduce", "resize"],
        "steps": {
            "decode": f"the first frame; a JPEG at 1/s of its size, by the scaled DCT of libjpeg, where s is the first "
            f"of jpeg_scales for which s * {side} is at most its width and its height as stored",
            "depth": "grey of more than 8 bits: round(255 * value / white), white being 65535 for whole numbers, for "
            "floats the first of deep_whites that no value exceeds; with values that are negative or higher than all "
            "of them, from the lowest value, as 0, to the highest, as 255; colour of 16 bits: the high byte",
            "colour": "palettes looked up; grey three times; CMYK as (255 - C)(255 - K) / 255 and so on; what is "
            "transparent is laid over the background: alpha * colour + (1 - alpha) * background",
            "upright": "turned or mirrored as the orientation of EXIF says",
            "reduce": f"a file of more than large_pixels, width times height as stored: the mean of each k x k pixels, "
            f"k being the shorter side of what step decode gave, divided by {side} and rounded down",
            "resize": "the whole image squashed to size; each output pixel is a mean over as many input pixels as it "
            "covers twice, weighted by a triangle, first along rows, then along columns, each rounded to 8 bits",
        },
    }


READING = """\
def read(file, side={side}):
    image = Image.open(file)
    large = image.width * image.height > {large}
    image.draft(None, (side, side))  # a large JPEG is decoded at a half, a quarter or an eighth of its size
    image = ImageOps.exif_transpose(image)
    if image.mode == "I" or image.mode.startswith("I;16"):  # 16-bit grey
        image = Image.fromarray(np.rint(np.asarray(image) * (255 / 65535)).astype(np.uint8))
    if image.has_transparency_data:
        rgba = image.convert("RGBA")
        image = Image.new("RGB", image.size, {background})
        image.paste(rgba, mask=rgba.getchannel("A"))
    image = image.convert("RGB")
    if large:
        image = image.reduce(max(1, min(image.size) // side))
    return image"""


def reading(side: int) -> str:
    """The same as Python for a model card: a function from a file to an RGB image, still to be resized."""
    return READING.format(side=side, large=LARGE_PIXELS, background=BACKGROUND)
