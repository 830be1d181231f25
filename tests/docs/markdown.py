"""What a Markdown file holds that can be wrong: code blocks, inline code, links and the anchors they may lead to."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_FENCE = re.compile(r"^(?P<indent>[ \t]*)(?P<fence>```+|~~~+)[ \t]*(?P<kind>[^\s`]*)[ \t]*(?P<more>[^`\n]*)$")
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_CODE = re.compile(r"(?<!`)(?P<ticks>`+)(?!`)(?P<text>(?:(?!\n[ \t]*\n).)+?)(?<!`)(?P=ticks)(?!`)", re.DOTALL)
_LINK = re.compile(r"\]\(\s*<?(?P<target>[^()\s<>]+)>?(?:\s+(?:\"[^\"]*\"|'[^']*'))?\s*\)")
_REFERENCE = re.compile(r"^[ \t]*\[[^\]]+\]:[ \t]*<?(?P<target>[^\s<>]+)", re.MULTILINE)
_HTML = re.compile(r"<(?:a|img|source)\b[^>]*?\b(?:href|src|srcset)=[\"'](?P<target>[^\"']+)[\"']")
_HEADING = re.compile(r"^#{1,6}[ \t]+(?P<text>.+?)[ \t]*#*$", re.MULTILINE)
_NAMED = re.compile(r"\b(?:id|name)=[\"'](?P<name>[^\"']+)[\"']")


@dataclass(frozen=True)
class Piece:
    """A code block, inline code or the target of a link."""

    document: str  # path of the file
    line: int  # of its first line of text
    text: str
    kind: str = ""  # of a block: the word behind its fence
    more: str = ""  # what else is there

    def __str__(self) -> str:
        return f"{self.document}:{self.line} {' '.join(self.text.split())[:80]}"


@dataclass(frozen=True)
class Document:
    """A Markdown file."""

    name: str
    text: str

    @classmethod
    def read(cls, root: Path, file: Path) -> "Document":
        return cls(str(file.relative_to(root)), file.read_text(encoding="utf-8"))

    def blocks(self) -> list[Piece]:
        """Code between fences, without the indentation that the fence has."""
        return [
            Piece(
                self.name,
                first,
                "".join(line.removeprefix(fence["indent"]) for line in lines),
                *fence.group("kind", "more"),
            )
            for first, lines, fence in self._fenced()
        ]

    def spans(self) -> list[Piece]:
        """Code between backticks; a line break within it is a space."""
        prose = self.prose()
        return [
            Piece(self.name, _line(prose, found.start()), " ".join(found["text"].replace(r"\|", "|").split()))
            for found in _CODE.finditer(prose)
        ]

    def links(self) -> list[Piece]:
        """Where links and pictures lead."""
        prose = _CODE.sub(_blank, self.prose())
        return [
            Piece(self.name, _line(prose, found.start("target")), found["target"])
            for pattern in (_LINK, _REFERENCE, _HTML)
            for found in pattern.finditer(prose)
        ]

    def anchors(self) -> set[str]:
        """What a link to this file may have behind its #, as GitHub makes it of headings."""
        prose, seen, anchors = self.prose(), dict[str, int](), set[str]()
        for found in _HEADING.finditer(prose):
            text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", found["text"])
            slug = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
            anchors.add(f"{slug}-{seen[slug]}" if slug in seen else slug)
            seen[slug] = seen.get(slug, 0) + 1
        return anchors | {found["name"] for found in _NAMED.finditer(prose)}

    def _fenced(self) -> Iterator[tuple[int, list[str], re.Match[str]]]:
        """Line number of the first line, the lines and the opening fence of each block."""
        lines = self.text.splitlines(keepends=True)
        number = 0
        while number < len(lines):
            opened = _FENCE.match(lines[number].rstrip("\n"))
            number += 1
            if not opened:
                continue
            first = number
            while number < len(lines) and not _closes(lines[number], opened["fence"]):
                number += 1
            yield first + 1, lines[first:number], opened
            number += 1

    def prose(self) -> str:
        """The text with blocks and comments blanked, so that places stay where they are."""
        lines = self.text.splitlines(keepends=True)
        for first, inside, _ in self._fenced():
            for number in range(first - 2, min(first + len(inside), len(lines))):
                lines[number] = "\n"
        return _COMMENT.sub(_blank, "".join(lines))


def _closes(line: str, fence: str) -> bool:
    text = line.strip()
    return text.startswith(fence) and not text.strip(fence[0])


def _line(text: str, place: int) -> int:
    return text.count("\n", 0, place) + 1


def _blank(found: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", found[0])
