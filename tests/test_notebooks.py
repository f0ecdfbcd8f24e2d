"""Guards of the notebooks: what pytest-nbval, which runs them and compares their outputs, does not see.

nbval passes a notebook that was never run, reads nothing of the Markdown twin, and compares no pictures. Each guard
returns the faults it found as sentences; the second half of this file plants such faults and sees them found.
"""

import ast
import builtins
import copy
import os
import re
import subprocess
import sys
from pathlib import Path

import jupytext
import nbformat
import pytest
import yaml

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "book" / "_ext"))
from symtutor_docs import claim_calls, plain_python  # noqa: E402

ADDRESS = yaml.safe_load((ROOT / "_config.yml").read_text())["repository"]["url"]
TEXTS = sorted((ROOT / "book").glob("*/[0-9][0-9]_*.md"))
NOTEBOOKS = sorted((ROOT / "book").glob("*/[0-9][0-9]_*.ipynb"))
MOST_BYTES = 1_500_000

FIRST_CELL = f"""\
import sys
from importlib.metadata import version

if "google.colab" in sys.modules:  # a hosted notebook: bring the library, keep the jax that is there
    %pip install -q "symtutor @ git+{ADDRESS}@main" "jax=={{version('jax')}}"
"""


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def tags(cell):
    return cell.metadata.get("tags", [])


# The guards --------------------------------------------------------------------------------------------------------


def pair_disagrees(text, notebook):
    """The .md is what people edit, the .ipynb what they see: cell for cell the same."""
    if len(text.cells) != len(notebook.cells):
        return [f"{len(text.cells)} cells in the .md, {len(notebook.cells)} in the .ipynb"]

    def essence(cell):
        return cell.cell_type, cell.source.strip(), tags(cell), cell.metadata.get("mystnb")

    pairs = enumerate(zip(text.cells, notebook.cells, strict=True))
    return [f"cell {i} differs between .md and .ipynb: {a.source[:60]!r}" for i, (a, b) in pairs if essence(a) != essence(b)]


def not_run_in_order(notebook):
    """As if by "restart and run all", with nothing that an author would not publish."""
    counts = [cell.execution_count for cell in code_cells(notebook)]
    faults = [] if counts == list(range(1, len(counts) + 1)) else [f"execution counts are {counts}"]
    for cell in code_cells(notebook):
        if list(claim_calls(cell.source)) and not cell.outputs:
            faults.append(f"a claim without its output: {cell.source[:60]!r}")
        for output in cell.outputs:
            if output.output_type == "error" or output.get("name") == "stderr":
                faults.append(f"an error or a warning was stored: {output.get('evalue') or output.get('text')!r}")
    return faults


def first_cell_differs(notebook):
    cells = code_cells(notebook)
    return [] if cells and cells[0].source.strip() == FIRST_CELL.strip() else ["the first code cell is not the usual one"]


def picture_without_words(notebook):
    """Alt text for those who cannot see the picture, a caption for those who can."""
    faults = []
    for cell in code_cells(notebook):
        if any(kind.startswith("image/") for output in cell.outputs for kind in output.get("data", {})):
            words = cell.metadata.get("mystnb", {})
            if not words.get("image", {}).get("alt") or not words.get("figure", {}).get("caption"):
                faults.append(f"a picture without alt text or caption: {cell.source[:60]!r}")
    return faults


def names_in(tree):
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def unclaimed_output(notebook):
    """Output that nbval is told to ignore must be checked otherwise: a claim of the notebook takes one of its values."""
    claimed = set()
    for cell in code_cells(notebook):
        for statement in ast.parse(plain_python(cell.source)).body:
            if list(claim_calls(ast.unparse(statement))):
                claimed |= names_in(statement)
    faults = []
    for cell in code_cells(notebook):
        if "nbval-ignore-output" in tags(cell):
            tree = ast.parse(plain_python(cell.source))
            own = {name for name in names_in(tree) if name not in imported(notebook) and name not in dir(builtins)}
            if not own & claimed:
                faults.append(f"an ignored output that feeds no claim: {cell.source[:60]!r}")
    return faults


def imported(notebook):
    trees = [ast.parse(plain_python(cell.source)) for cell in code_cells(notebook)]
    imports = [n for tree in trees for n in ast.walk(tree) if isinstance(n, ast.Import | ast.ImportFrom)]
    return {(alias.asname or alias.name).split(".")[0] for node in imports for alias in node.names}


GUARDS = [not_run_in_order, first_cell_differs, picture_without_words, unclaimed_output]

# The guards on the notebooks of the book ---------------------------------------------------------------------------


def name(path):
    return str(path.relative_to(ROOT / "book"))


def test_every_notebook_is_a_pair():
    assert [path.with_suffix("") for path in TEXTS] == [path.with_suffix("") for path in NOTEBOOKS]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name)
def test_pair_agrees(path):
    assert pair_disagrees(jupytext.read(path.with_suffix(".md")), nbformat.read(path, as_version=4)) == []


@pytest.mark.parametrize("guard", GUARDS)
@pytest.mark.parametrize("path", NOTEBOOKS, ids=name)
def test_notebook(path, guard):
    assert guard(nbformat.read(path, as_version=4)) == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name)
def test_notebook_is_light(path):
    assert path.stat().st_size <= MOST_BYTES


def test_public_address_is_that_of_the_configuration():
    """Readers run code from there, so no file may send them to anybody else's repository of this name."""
    owner, repository = ADDRESS.rsplit("/", 2)[1:]
    pattern = re.compile(rf"(?:github\.com|/github|/gh)/([\w.-]+)/{repository}\b")
    folders = [ROOT / ".ci", *(path for path in ROOT.iterdir() if not path.name.startswith((".", "_build")))]
    files = [file for path in folders for file in ([path] if path.is_file() else path.rglob("*")) if file.is_file()]
    found = {(file, match[1]) for file in files for match in pattern.finditer(file.read_text(errors="ignore"))}
    assert {(file, account) for file, account in found if account != owner} == set()
    assert len(found) > len(NOTEBOOKS)  # the pattern does find addresses


# The tests tested --------------------------------------------------------------------------------------------------


@pytest.fixture
def small():
    """A small notebook without fault, as text and as notebook with outputs."""
    text = nbformat.v4.new_notebook()
    text.cells = [
        nbformat.v4.new_markdown_cell("# Title"),
        nbformat.v4.new_code_cell(FIRST_CELL.strip()),
        nbformat.v4.new_code_cell("six = 2 * 3\nprint(f'six is {six}')"),
        nbformat.v4.new_code_cell("st.claim('six', six, equals=6, within=0)"),
    ]
    notebook = copy.deepcopy(text)
    for count, cell in enumerate(code_cells(notebook), start=1):
        cell.execution_count = count
    for cell, line in zip(code_cells(notebook)[1:], ["six is 6", "six = 6"], strict=True):
        cell.outputs = [nbformat.v4.new_output("stream", name="stdout", text=line + "\n")]
    return text, notebook


def faults_of(text, notebook):
    return pair_disagrees(text, notebook) + [fault for guard in GUARDS for fault in guard(notebook)]


def test_guards_pass_a_good_notebook(small):
    assert faults_of(*small) == []


def never_run(text, notebook):
    notebook.cells = copy.deepcopy(text.cells)


def edited_text(text, notebook):
    text.cells[2].source = text.cells[2].source.replace("3", "4")


def lost_tag(text, notebook):
    text.cells[2].metadata["tags"] = ["hide-input"]


def lost_cell(text, notebook):
    del text.cells[2]


def stored_error(text, notebook):
    notebook.cells[3].outputs = [nbformat.v4.new_output("error", ename="ValueError", evalue="no", traceback=[])]


def stored_warning(text, notebook):
    notebook.cells[2].outputs.append(nbformat.v4.new_output("stream", name="stderr", text="careful"))


def other_first_cell(text, notebook):
    for one in (text, notebook):
        one.cells[1].source = "%pip install symtutor"


def bare_picture(text, notebook):
    notebook.cells[2].outputs.append(nbformat.v4.new_output("display_data", data={"image/png": "AAAA"}))


def ignored_and_unclaimed(text, notebook):
    for one in (text, notebook):
        one.cells[2].metadata["tags"] = ["nbval-ignore-output"]
        one.cells[2].source = "seven = 7\nprint(f'seven is {seven}')"


@pytest.mark.parametrize(
    "plant, found",
    [
        (never_run, "execution counts"),
        (edited_text, "differs between"),
        (lost_tag, "differs between"),
        (lost_cell, "cells in the .md"),
        (stored_error, "an error or a warning"),
        (stored_warning, "an error or a warning"),
        (other_first_cell, "first code cell"),
        (bare_picture, "without alt text"),
        (ignored_and_unclaimed, "feeds no claim"),
    ],
)
def test_guards_find(small, plant, found):
    plant(*small)
    assert any(found in fault for fault in faults_of(*small))


def test_nbval_fails_a_tampered_notebook(small, tmp_path):
    """As `make test` runs it; a stored number is changed. The untouched copy passes, so it is the number that fails."""
    _, notebook = small
    del notebook.cells[3]  # needs no library: the kernel starts in a second
    nbformat.write(notebook, tmp_path / "honest.ipynb")
    notebook.cells[2].outputs[0].text = "six is 7\n"
    nbformat.write(notebook, tmp_path / "tampered.ipynb")
    options = ["-c", ROOT / "pyproject.toml", "--rootdir", ROOT, "-p", "no:cacheprovider", "-p", "no:xdist", "-rA"]
    run = subprocess.run([sys.executable, "-m", "pytest", *options, tmp_path], cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 1, run.stdout + run.stderr
    assert not re.search(r"FAILED .*honest", run.stdout) and re.search(r"PASSED .*honest", run.stdout), run.stdout
    assert re.search(r"FAILED .*tampered.ipynb::Cell 1", run.stdout), run.stdout


# A negative control of the whole book: turn the orbit the wrong way, and its claims must not hold.
FLIPPED_SIGN = """
from symtutor.tangents import OrbitTangent
right = OrbitTangent.__call__
OrbitTangent.__call__ = lambda self, *given: -right(self, *given)
"""


def test_flipped_sign_of_the_generator_turns_claims_red():
    path = ROOT / "book" / "start" / "01_quickstart.ipynb"  # the shortest that follows an orbit
    cells = [plain_python(cell.source) for cell in code_cells(nbformat.read(path, as_version=4))]
    script = "\n".join([FLIPPED_SIGN, *cells])
    environment = {**os.environ, "MPLBACKEND": "Agg"}
    run = subprocess.run([sys.executable, "-c", script], cwd=path.parent, env=environment, capture_output=True, text=True)
    assert run.returncode == 1 and "ClaimError: " in run.stderr.splitlines()[-1], run.stdout + run.stderr
