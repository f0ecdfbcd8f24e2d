"""Tables over seeds: what is too slow for a chapter is measured once by ``make sweep``, and kept with what produced it.

The tables lie in the package, so that a notebook finds them wherever it runs.
"""

import ast
import hashlib
import importlib
import json
import platform
import re
import sys
from collections.abc import Callable, Iterable
from importlib import metadata
from pathlib import Path

import numpy as np

PACKAGE = Path(__file__).parent
# what cannot change a measured number
NOT_MEASURED = {"__init__", "checks", "claims", "exercises", "figures", "tables"}


def seed_table(name: str) -> dict[str, np.ndarray]:
    """Read the table of an experiment over seeds.

    Args:
        name: of the experiment, such as ``"annulus"``.

    Returns:
        A dict from the name of each measured quantity to its values, one a seed, shape ``(seeds,)``.

    Raises:
        ValueError: if there is no such table.

    Example:
        >>> table = seed_table("annulus")
        >>> table["seed"].shape
        (10,)
    """
    rows = read_table(name)["rows"]
    return {key: np.array([row[key] for row in rows]) for key in rows[0]}


def read_table(name: str) -> dict:
    """Return the whole table: ``settings``, ``source`` (a hash), ``versions`` and ``rows``."""
    path = table_path(name)
    if not path.exists():
        known = sorted(p.stem.removesuffix("_sweep") for p in path.parent.glob("*_sweep.json"))
        raise ValueError(f"name is {name!r}; expected one of {known}.")
    return json.loads(path.read_text())


def table_path(name: str) -> Path:
    """Return where the table of an experiment lies."""
    return PACKAGE / "experiments" / f"{name}_sweep.json"


def source_hash(script: str | Path) -> str:
    """Return a hash of the sweep's script and of the library modules behind it, without comments and docstrings.

    Those are the modules of the names ``st.name`` that the script uses, and what they import, and so on.

    Args:
        script: path of the script that measures.

    Returns:
        Sixteen hexadecimal digits.
    """
    wanted = {_module_of(name) for name in re.findall(r"\bst\.(\w+)", Path(script).read_text())}
    modules = set()
    while new := {path for path in wanted if path.stem not in NOT_MEASURED} - modules:
        modules |= new
        wanted = {path for module in new for path in _imported(module)}
    text = "\n".join(line for path in [Path(script), *sorted(modules)] for line in _code_lines(path))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def write_table(
    name: str, script: str | Path, measure: Callable[[int], dict], seeds: Iterable[int], settings: dict
) -> None:
    """Measure all seeds, showing progress, and write the table.

    Args:
        name: of the experiment.
        script: path of the script that measures.
        measure: function from a seed to a dict of numbers.
        seeds: the seeds.
        settings: what the numbers depend on, written beside them.
    """
    source, rows = source_hash(script), []  # of the code that measures, whatever is edited meanwhile
    for seed in seeds:
        rows.append({"seed": seed} | {key: float(f"{float(value):.6g}") for key, value in measure(seed).items()})
        print(f"{name}, seed {seed}: " + ", ".join(f"{key} {value:.3g}" for key, value in rows[-1].items()), flush=True)
    versions = {package: metadata.version(package) for package in ("jax", "jaxlib", "diffrax", "optax", "numpy")}
    table = {
        "settings": settings,
        "source": source,
        "versions": {"python": platform.python_version()} | versions,
        "rows": rows,
    }
    table_path(name).write_text(json.dumps(table, indent=1) + "\n")


def _module_of(name: str) -> Path:
    """Return the file in which a public name is defined; of an experiment or the figures, the file itself."""
    thing = getattr(importlib.import_module("symtutor"), name)
    return Path(sys.modules[getattr(thing, "__module__", thing.__name__)].__file__)


def _imported(path: Path) -> set[Path]:
    """Return the files of this package that a module imports."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "symtutor":
            parent = PACKAGE.joinpath(*node.module.split(".")[1:])
            found |= {parent.with_suffix(".py"), *(parent / f"{alias.name}.py" for alias in node.names)}
    return {file for file in found if file.exists()}


def _code_lines(path: Path) -> list[str]:
    text = path.read_text()
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
    left_out = set()
    for node in ast.walk(ast.parse(text)):
        for child in node.body if isinstance(node, documented) else ():
            if (
                isinstance(child, ast.Expr)
                and isinstance(child.value, ast.Constant)
                and isinstance(child.value.value, str)
            ):
                left_out.update(range(child.lineno, child.end_lineno + 1))
    lines = (line.split("  # ")[0].rstrip() for i, line in enumerate(text.splitlines(), 1) if i not in left_out)
    return [line for line in lines if line and not line.lstrip().startswith("#")]
