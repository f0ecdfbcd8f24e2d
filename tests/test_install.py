"""The book away from home: the built wheel beside the older jax of a hosted notebook, and each notebook alone there.

Hosted notebooks bring their own jax, built for their accelerators: installing the library must leave it as it is. The
versions below are those of Colab in autumn 2026. The interpreter is Python 3.13 where there is one, as there.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PLACE = ROOT / ".cache" / "test_install"
NOTEBOOKS = sorted((ROOT / "book").glob("*/[0-9][0-9]_*.ipynb"))
JAX = "jax==0.7.2"
HOSTED = [
    JAX,
    "jaxlib==0.7.2",
    "numpy==2.1.3",
    "matplotlib==3.10.0",
    "ipython==7.34.0",
    "ipykernel==6.17.1",
    "setuptools",
]


def run(*command, **kwargs):
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "VIRTUAL_ENV"))}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, **kwargs)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def find_python():
    """Python 3.13 if one starts, else the one that runs the tests."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for path in [shutil.which("python3.13"), *pyenv.glob("3.13.*/bin/python3.13")]:
        if path and subprocess.run([path, "-c", "import venv, ensurepip"], capture_output=True).returncode == 0:
            return path
    return sys.executable


def install(python, *requirements):
    if uv := shutil.which("uv"):
        run(uv, "pip", "install", "--quiet", "--python", python, *requirements)
    else:
        run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile", *requirements)


@pytest.fixture(scope="module")
def wheel():
    shutil.rmtree(PLACE / "wheel", ignore_errors=True)
    run(sys.executable, "-m", "build", "--wheel", "--outdir", PLACE / "wheel", ROOT)
    (path,) = (PLACE / "wheel").glob("symtutor-*.whl")
    return path


@pytest.fixture(scope="module")
def hosted(wheel):
    """The Python of an environment like Colab's, with the wheel added the way the first cell of each notebook adds it."""
    base = find_python()
    key = hashlib.sha256(repr([base, HOSTED, (ROOT / "pyproject.toml").read_text()]).encode()).hexdigest()
    place = PLACE / key[:12]
    python = place / "bin" / "python"
    if not (place / "ready").exists():  # the dependencies have not changed since: keep what is there
        shutil.rmtree(place, ignore_errors=True)
        run(base, "-m", "venv", place)
        install(python, *HOSTED, "pytest<10", "nbval")
        install(python, wheel, JAX)
        (place / "ready").touch()
    install(python, "--force-reinstall", "--no-deps", wheel)
    return python


def test_wheel_holds_the_library_and_its_licence(wheel):
    names = run(sys.executable, "-m", "zipfile", "-l", wheel)
    assert "symtutor/__init__.py" in names and "LICENSE" in names
    assert "tests/" not in names and "book/" not in names


def test_install_leaves_jax_as_it_is(hosted, tmp_path):
    code = "import jax, jaxlib, symtutor; print(jax.__version__, jaxlib.__version__, symtutor.__file__)"
    jax_version, jaxlib_version, place = run(hosted, "-c", code, cwd=tmp_path).split()
    assert (jax_version, jaxlib_version) == ("0.7.2", "0.7.2")
    assert Path(place).is_relative_to(hosted.parents[1])


def test_first_cell_asks_for_the_jax_that_is_there(hosted, tmp_path):
    """IPython fills the version into the magic, in the old release of hosted notebooks as in today's."""
    code = f"""
import json, sys, types
from IPython.core.interactiveshell import InteractiveShell
sys.modules["google.colab"] = types.ModuleType("google.colab")
shell = InteractiveShell.instance()
shell.register_magic_function(print, "line", "pip")
cells = json.load(open({str(NOTEBOOKS[0])!r}))["cells"]
shell.run_cell("".join(next(cell["source"] for cell in cells if cell["cell_type"] == "code")))
"""
    asked = run(hosted, "-c", code, cwd=tmp_path, timeout=60)
    assert asked.startswith("install -q ") and f'"{JAX}"' in asked


def test_notebooks_run_there_alone(hosted, tmp_path):
    """Each in an empty folder; their outputs are text that holds on every machine, so nbval compares them strictly."""

    def run_in_turn(notebooks, cache):
        failed = []  # the others are run all the same
        for notebook in notebooks:
            folder = tmp_path / f"{notebook.parent.name}_{notebook.stem}"
            folder.mkdir()
            shutil.copy(notebook, folder)
            shutil.copy(ROOT / "tests" / "nbval_sanitize.cfg", folder)
            options = [
                "--nbval",
                "--nbval-sanitize-with=nbval_sanitize.cfg",
                "--nbval-current-env",
                "-p",
                "no:cacheprovider",
            ]
            try:
                run(
                    "env", f"JAX_COMPILATION_CACHE_DIR={tmp_path / cache}", hosted,
                    "-m", "pytest", "-q", "-c", os.devnull, *options, notebook.name, cwd=folder,
                )  # fmt: skip
            except AssertionError as error:
                failed.append(f"{notebook.name}:\n{error}")
        return failed

    # two at a time, each with a cache of its own: this is the last and longest test, when the other worker has no more to do
    with ThreadPoolExecutor(2) as pool:
        halves = [pool.submit(run_in_turn, NOTEBOOKS[i::2], f"cache_{i}") for i in range(2)]
    failed = [one for half in halves for one in half.result()]
    assert not failed, "\n\n".join(failed)
