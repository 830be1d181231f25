"""A run with all that a user does with it, as methods: what the command line has as verbs."""

from collections.abc import Sequence
from pathlib import Path

from somnet.cleaning.clean import Cleaned, CleaningRules, clean
from somnet.exports.network import export
from somnet.report.site import write_report
from somnet.runs import run
from somnet.runs.run_folder import PICTURES


class Run(run.Run):
    """A finished or interrupted run on disk."""

    def clean(
        self,
        out: Path | str,
        rules: CleaningRules | None = None,
        *,
        formats: Sequence[str] = ("imagefolder",),
        data: Path | str | None = None,
        dry_run: bool = False,
        overwrite: bool = False,
    ) -> Cleaned:
        """Write a cleaned copy of the data that the run was trained on: `somnet.clean`."""
        return clean(self, out, rules, formats=formats, data=data, dry_run=dry_run, overwrite=overwrite)

    def export(self, format: str = "onnx", out: Path | str | None = None, *, overwrite: bool = False) -> Path:
        """Write the network for other programs, as onnx or timm, and return the folder: `somnet.export`."""
        return export(self, format, out, overwrite=overwrite)

    def report(self, *, pictures: int = PICTURES) -> Path:
        """Write the report again, and return its index.html: with other pictures, or where data or programs are new."""
        return write_report(self, pictures=pictures)
