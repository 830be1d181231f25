"""What the documents tell a reader to type works: commands, snippets, settings, links. Nothing in them is skipped."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pydantic import BaseModel

import somnet
from somnet.config import Config
from tests.docs.checks import Check, checks_of, checks_of_examples, documents, is_call, kind_of, mistakes
from tests.docs.commands import command_lines, simple_commands
from tests.docs.markdown import Document, Piece
from tests.docs.programs import ROOT, VERBS, Wrong, stand_ins

if TYPE_CHECKING:
    from tests.conftest import Tiny

DOCUMENTS = documents()
CHECKS = [*(check for document in DOCUMENTS for check in checks_of(document)), *checks_of_examples()]
CLASS_FOLDERS, TEST_FOLDERS, SPLIT_FOLDERS = ("crawl",), ("clean", "new"), ("photos",)  # data that snippets name


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Commands are understood, but nothing happens."""
    stand_ins(monkeypatch, tmp_path)


@pytest.mark.usefixtures("typed")
@pytest.mark.parametrize("check", CHECKS, ids=str)
def test_what_a_document_says_is_right(check: Check) -> None:
    try:
        check.run()
    except Wrong as problem:
        message = f"{check}\n{problem}"
    else:
        return
    pytest.fail(message, pytrace=False)


# Python, for real


def snippets(document: Document) -> list[Piece]:
    """Python blocks but for ```python no-run, and inline code that calls somnet, in the order of the document."""
    blocks = [block for block in document.blocks() if kind_of(block) == "python" and block.more != "no-run"]
    calls = [span for span in document.spans() if span.text.startswith("somnet.") and is_call(span.text)]
    return sorted(blocks + calls, key=lambda piece: piece.line)


WITH_PYTHON = [document for document in DOCUMENTS if snippets(document)]


@pytest.fixture
def small(tiny: "Tiny") -> Iterator[None]:
    """The defaults of the config are those of a run of a second."""
    defaults = Config()
    _set_defaults(Config, tiny.config(defaults.method))
    yield
    _set_defaults(Config, defaults)


def _set_defaults(section: type[BaseModel], values: BaseModel) -> None:
    for name, field in section.model_fields.items():
        field.default = getattr(values, name)
        if isinstance(field.default, BaseModel):
            _set_defaults(type(field.default), field.default)
    section.model_rebuild(force=True)


@pytest.fixture
def desk(data: Path, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with data under the names that the documents use."""
    for names, source in ((CLASS_FOLDERS, data / "train"), (TEST_FOLDERS, data / "test"), (SPLIT_FOLDERS, data)):
        for name in names:
            shutil.copytree(source, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def prepare_runs(code: str, desk: Path, trained: Path) -> None:
    """The runs, and exports of them, that code names, but for those that it makes itself."""
    made = set(re.findall(r"""\bout=["'](runs/[\w-]+)""", code))
    for run, format in dict.fromkeys(re.findall(r"\b(runs/[\w-]+)(?:/export/(\w+))?", code)):
        if run not in made:
            shutil.copytree(trained, desk / run, dirs_exist_ok=True)
        if format:
            somnet.export(desk / run, format)


def run_snippets(pieces: list[Piece], desk: Path, trained: Path) -> None:
    """Run them one after the other, as a reader would: blocks know what those before have left, inline code somnet."""
    prepare_runs("\n".join(piece.text for piece in pieces), desk, trained)
    names: dict[str, object] = {}
    for piece in pieces:
        code = compile("\n" * (piece.line - 1) + piece.text, piece.document, "exec")  # so tracebacks tell the line
        exec(code, names if piece.kind else {"somnet": somnet})


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("document", WITH_PYTHON, ids=lambda document: document.name)
def test_the_python_of_a_document_runs(document: Document, desk: Path, trained: Path) -> None:
    run_snippets(snippets(document), desk, trained)


# The checks themselves


def wrongs(text: str) -> list[str]:
    return mistakes(checks_of(Document("docs/made-up.md", text)))


def bash(line: str) -> str:
    return f"```bash\n{line}\n```\n"


@pytest.mark.usefixtures("typed")
@pytest.mark.parametrize(
    ("text", "message"),
    [
        (bash("somnet trian crawl"), "No such command 'trian'"),
        (bash("somnet train crawl --epoch 3"), "No such option"),
        (bash("somnet train crawl --epochs many"), "valid integer"),
        (bash("somnet train crawl --epochs 0"), "train.epochs"),
        (bash("somnet train crawl --precision fp8"), "train.precision"),
        (bash("somnet train"), "(?i)missing argument 'data'"),
        (bash("somnet train crawl more"), "unexpected extra argument"),
        (bash("somnet train crawl --resume"), "--resume needs the folder"),
        (bash("somnet train crawl --method best"), "there is no method 'best'"),
        (bash("somnet train crawl --set train.rate=1"), "unknown setting 'train.rate'"),
        (bash("somnet train crawl --set train.lr=fast"), "train.lr"),
        (bash("somnet train crawl --config configs/clothing2m.toml"), "cannot read the config"),
        (bash("somnet bench photos/ --out bench --methods plain,best"), "there is no method 'best'"),
        (bash("somnet bench photos/ --out bench --tables all"), "there is no table 'all'"),
        (bash("somnet bench photos/ --out bench --noise flips=0.4"), "cannot read the noise"),
        (bash("somnet bench photos/ --out bench --seeds 4-0"), "cannot read the seeds"),
        (bash("somnet clean runs/1 --out new --policy burn"), "there is no policy 'burn'"),
        (bash("somnet clean runs/1 --out new --format voc"), "there is no format 'voc'"),
        (bash("somnet export runs/1 --format pickle"), "there is no format 'pickle'"),
        (bash("somnet predict runs/1"), "(?i)missing argument 'images"),
        (bash("ls | somnet predcit runs/1 new"), "No such command"),
        (bash("somnet train crawl \\\n  --out runs/1 \\\n  --sed 1"), "No such option"),
        (bash("somnet train crawl \\"), "the last line goes on"),
        (bash("somnet train crawl/<class>"), "a shell takes < and > for files"),
        (bash("somnet train 'crawl"), "No closing quotation"),
        (bash("SOMNET_CASH=/tmp somnet doctor"), "does not know the variable SOMNET_CASH"),
        (bash("torchrun --nprocs 4 -m somnet train crawl"), "unrecognized arguments|required: training_script"),
        (bash("torchrun --nproc-per-node 4 -m somnet trian crawl"), "No such command"),
        (bash("torchrun --nproc-per-node 4 $(which somnet) trian crawl"), "No such command"),
        (bash("python -m somnet trian crawl"), "No such command"),
        (bash("python benchmarks/rois.py"), "there is no script benchmarks/rois.py"),
        (bash("python benchmarks/roi.py --pairs 5"), "unrecognized arguments: --pairs"),
        (bash("python benchmarks/scaling.py"), "python -m benchmarks.scaling"),
        (bash("python -m benchmarks.nothing"), "there is no module benchmarks.nothing"),
        (bash("make dmeo"), "there is no make target dmeo"),
        (bash("pip install 'somnet[exports]'"), "there is no extra exports"),
        (bash("pytest -m quick"), "there is no marker quick"),
        (bash("pytest tests/test_cli.py"), "there is no tests/test_cli.py"),
        (bash("sbatch examples/slurm.bash"), "there is no examples/slurm.bash"),
        (bash("somnets train crawl"), "the program somnets is not understood"),
        ("```console\nsome words\n$ somnet docter\nmore words\n```", "No such command 'docter'"),
        ("```bash\n# nothing\n```", "without a command"),
        ("```\n$ somnet docter\n```", "No such command 'docter'"),
        ("```\nwhat is this?\n```", "say what this block is"),
        ("```ruby\nputs 1\n```", "say what this block is"),
        ("   ```text\n   somnet train crawl\n   ```", "looks like a command"),
        ("```text\nsomnet/\n  cores/  nothing.py\n```", "there is no file nothing.py"),
        ("```python\nimport somnet.nothing\n```", "cannot import somnet.nothing"),
        ("```python\nfrom somnet import Nothing\n```", "cannot import Nothing from somnet"),
        ("```python\nimport somnet\nsomnet.trian('crawl')\n```", "somnet has no trian"),
        ("```python\nimport somnet as s\ns.train('crawl', epochs=3)\n```", "unexpected keyword argument 'epochs'"),
        ("```python\nfrom somnet import Run\nRun()\n```", "missing a required argument: 'path'"),
        ("```python\nif\n```", "not Python"),
        ("```toml\n[train]\nrate = 1\n```", "train.rate: unknown setting"),
        ("```toml\n[trian]\nlr = 1\n```", "trian: unknown setting"),
        ("```toml\n[train\n```", "Expected"),
        ("```json\n{'a': 1}\n```", "not JSON"),
        ("```jsonl\n{}\n{\n```", "not JSON"),
        ("```yaml\na: [1\n```", "not YAML"),
        ("```yaml\n- command: [torchrun, -m, somnet]\n  args: [trian]\n```", "No such command"),
        ("```csv\na,b\n1\n```", "rows of different lengths"),
        ("Try `somnet trian`.", "No such command 'trian'"),
        ("Try `somnet train --epoch`.", "No such option"),
        ("Try `somnet export RUN --format timm|pickle`.", "there is no format 'pickle'"),
        ("Try `somnet clean RUN`.", "Missing option '--out'"),
        ("Try `make dmeo`.", "there is no make target dmeo"),
        ("Add `--resum`.", "no verb has --resum"),
        ("Add `--freeze all`.", "model.freeze"),
        ("Set `train.rate`.", "neither a setting nor"),
        ("Set `somnet.memory.side=0`.", "somnet.memory.side"),
        ("Set `region=false`.", "no setting is called region"),
        ("See `somnet.core.memory.loser`.", "neither a setting nor"),
        ('Call `somnet.clean("runs/1", how="drop")`.', "unexpected keyword argument|missing a required argument"),
        ("Call `Run.predict(files, tops=3)`.", "unexpected keyword argument 'tops'"),
        ("Call `Run.guess(files)`.", "Run has no guess"),
        ("See somnet/core/memories.py.", "there is no somnet/core/memories.py"),
        ("See [this](nothing.md).", "there is no nothing.md"),
        ("See [`this`](benchmark.md#nothing).", "makes the anchor #nothing"),
        ("# Here\n\nSee [this](#there).", "makes the anchor #there"),
        ("![A picture](pictures/nothing.png)", "there is no pictures/nothing.png"),
        ("[1]: ../../elsewhere.md", "leads out of the repository"),
        ('<img src="pictures/nothing.png">', "there is no pictures/nothing.png"),
    ],
)
def test_a_mistake_is_found(text: str, message: str) -> None:
    [found] = [wrong for wrong in wrongs(text) if re.search(message, wrong)]
    assert found.startswith("docs/made-up.md:")


RIGHT = """
# A heading, and `code`

```console
$ source .venv/bin/activate
$ CUDA_VISIBLE_DEVICES=0 SOMNET_CACHE=/tmp/it\\'s somnet train "my crawl/" \\
>     --out runs/1 --set train.lr=0.02   # isn't it
trian of thought
$ somnet eval runs/1 clean/ 2>&1 | tee log.txt && make demo PYTHON=python3 > out.txt
```

1. In a list:

   ```sh
   sudo apt install python3-venv
   .venv/bin/python -m pip install -e ".[dev]" --constraint constraints.txt
   torchrun --standalone --nproc-per-node 2 $(which somnet) bench photos/ --out bench --methods mine,plain
   python3 -m benchmarks.scaling --images 10 20
   somnet train crawl --config my.toml
   ```

~~~python no-run
import somnet as s
from somnet.config import Config

run = s.train("crawl", Config(seed=1).with_settings({"train.lr": 0.1}), out="runs/1")
~~~

```toml
[somnet.memory]
side = 4
```

```toml
[tool.ruff]
line-length = 120
```

`somnet predict RUN IMAGES... [--out FILE] [--top-k 5]`, `--format timm|onnx`, `--set a.b=c`, `somnet bench ...
--seeds 0-2`, `somnet+`, `somnet`, `model.onnx`, `somnet/methods/mine.py`, `tests/<folder>/test_*.py`.
See [here](#a-heading-and-code), [there](benchmark.md#noise-recipes "title"), [all](recipes/), [far](https://x.org/y.md).
<!-- [not](there.md) `somnet trian` -->
"""


@pytest.mark.usefixtures("typed")
def test_nothing_is_found_where_all_is_right() -> None:
    assert wrongs(RIGHT) == []


def test_a_session_is_read_as_a_shell_would() -> None:
    [block, *_] = Document("x.md", RIGHT).blocks()
    lines = command_lines(block.text, block.line)
    assert [number for number, _ in lines] == [5, 6, 9]
    assert list(simple_commands(lines[1][1])) == [
        [
            *("CUDA_VISIBLE_DEVICES=0", "SOMNET_CACHE=/tmp/it's", "somnet", "train", "my crawl/"),
            *("--out", "runs/1", "--set", "train.lr=0.02"),
        ]
    ]
    assert list(simple_commands(lines[2][1])) == [
        ["somnet", "eval", "runs/1", "clean/"],
        ["tee", "log.txt"],
        ["make", "demo", "PYTHON=python3"],
    ]


@pytest.mark.usefixtures("small")
def test_python_that_fails_is_found(desk: Path, trained: Path) -> None:
    document = Document("x.md", "```python\nimport somnet\n```\n\n```python\nsomnet.Run('runs/1').predcit([])\n```\n")
    with pytest.raises(AttributeError, match="predcit"):
        run_snippets(snippets(document), desk, trained)


def test_python_is_run_unless_the_block_says_otherwise() -> None:
    assert snippets(Document("x.md", RIGHT)) == []
    assert len(snippets(Document("x.md", RIGHT.replace(" no-run", "")))) == 1


def test_the_documents_show_every_verb_and_every_config() -> None:
    shown = "\n".join(check.piece.text for check in CHECKS)
    assert [verb for verb in VERBS if not re.search(rf"\bsomnet {verb}\b", shown)] == []
    assert [file.name for file in sorted((ROOT / "configs").iterdir()) if f"configs/{file.name}" not in shown] == []
