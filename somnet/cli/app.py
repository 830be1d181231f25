"""The application that the verbs belong to, and the options that they share."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from typer.core import TyperGroup

from somnet.methods.registry import METHODS

VERBS = (  # in the order of a session: what comes first is what is needed first
    *("train", "report", "review", "clean", "predict", "eval", "export"),
    *("plan", "embed", "propose", "bench", "compare", "demo", "doctor", "cache", "settings"),
)


class InOrder(TyperGroup):
    """Lists the verbs in the order in which people need them."""

    def list_commands(self, ctx: Any) -> list[str]:
        """All of them."""
        return sorted(self.commands, key=VERBS.index)


app = typer.Typer(
    cls=InOrder,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Train image classifiers on noisy web images, and see which images and regions are noise. Begin with: somnet "
    "train FOLDER, where FOLDER has a folder of images for each class.",
)
console = Console()

DataArgument = Annotated[
    Path,
    typer.Argument(
        help="Folder of class folders, with or without train/ and test/; a zip file of that; a folder with a metadata "
        "manifest, of Hugging Face's Parquet files or of tar shards; or a data set of the paper."
    ),
]
RunArgument = Annotated[Path, typer.Argument(help="The --out folder of somnet train.")]
MethodOption = Annotated[str | None, typer.Option(help=f"{', '.join(METHODS)}; or package.module:Class.")]
ModelOption = Annotated[str | None, typer.Option(help="Any timm model name.")]
WeightsOption = Annotated[Path | None, typer.Option(help="Its weights from a .safetensors file.")]
EmbeddingsOption = Annotated[
    Path | None, typer.Option(help="Vectors of the images by any model, .parquet or .npy; no network is used then.")
]
ImgszOption = Annotated[int | None, typer.Option(help="Side of the network's input, in pixels.")]
FreezeOption = Annotated[
    str | None, typer.Option(help="trunk: last stage and classifier on cached maps; none: everything.")
]
EpochsOption = Annotated[int | None, typer.Option(help="How often each image is used.")]
BatchSizeOption = Annotated[int | None, typer.Option(help="Images per step.")]
DeviceOption = Annotated[str, typer.Option(help="cpu, cuda, cuda:1, ...; auto takes the GPU if there is one.")]
WorkersOption = Annotated[
    int | None, typer.Option(min=0, help="Data-loading processes; by default what the network leaves free.")
]
LinksOption = Annotated[
    bool | None, typer.Option("--follow-links", help="Also read what links in the data lead to outside of it.")
]
SeedsOption = Annotated[str, typer.Option(help="As in 0,1,2 or 0-4.")]
ConfigOption = Annotated[Path | None, typer.Option(help="TOML file with settings that differ from the defaults.")]
SetOption = Annotated[list[str] | None, typer.Option("--set", metavar="A.B=C", help="One setting; may be repeated.")]
