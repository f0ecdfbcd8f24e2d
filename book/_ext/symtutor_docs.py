"""What this book asks of Sphinx beyond its extensions.

1. Every public name of the library has a docstring and a place on the API page, or the build warns: an error under -W.
2. The directive ``{claims}`` lists each checked number of the notebooks, read from their text without running it.
3. In the API pages, `names` in docstrings become links, and types of other libraries link to their documentation by the
   short table below, so no inventory need be fetched.
"""

import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import jax
import jupytext
from docutils import nodes
from docutils.statemachine import StringList
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

logger = logging.getLogger(__name__)

ELSEWHERE = {
    "Ellipsis": "https://docs.python.org/3/library/constants.html#Ellipsis",
    "jax.Array": "https://docs.jax.dev/en/latest/_autosummary/jax.Array.html",
    "matplotlib.axes._axes.Axes": "https://matplotlib.org/stable/api/_as_gen/matplotlib.axes.Axes.html",
    "numpy.ndarray": "https://numpy.org/doc/stable/reference/generated/numpy.ndarray.html",
    "collections.abc.Callable": "https://docs.python.org/3/library/collections.abc.html#collections.abc.Callable",
    "collections.abc.Sequence": "https://docs.python.org/3/library/collections.abc.html#collections.abc.Sequence",
    "optax._src.base.GradientTransformation": "https://optax.readthedocs.io/en/latest/api/transformations.html",
    "typing.Any": "https://docs.python.org/3/library/typing.html#typing.Any",
    "typing.NamedTuple": "https://docs.python.org/3/library/typing.html#typing.NamedTuple",
}


# 1. Public names -------------------------------------------------------------------------------------------------


def public_names(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """Yield (name, object) of all that a module makes public, down through public modules and methods of classes."""
    own = [name for name, thing in vars(module).items() if getattr(thing, "__module__", None) == module.__name__]
    for name in getattr(module, "__all__", [name for name in own if not name.startswith("_")]):
        thing = getattr(module, name)
        yield f"{module.__name__}.{name}", thing
        if inspect.ismodule(thing):
            yield from public_names(thing)
        elif inspect.isclass(thing):
            for method, function in vars(thing).items():
                if inspect.isfunction(function) and not method.startswith("_"):
                    yield f"{module.__name__}.{name}.{method}", function


def is_documented(thing: Any) -> bool:
    """Tell whether somebody wrote its docstring: Python makes up one for a NamedTuple, a dataclass, a plain value."""
    text = inspect.cleandoc(thing.__doc__ or "")
    if inspect.isclass(thing):
        return bool(text) and not text.startswith(f"{thing.__name__}(")
    return bool(text) and text != inspect.cleandoc(type(thing).__doc__ or "")


def check_public_names(app, env) -> None:
    """Warn of each public name without a docstring, and of each that no page describes."""
    python = env.get_domain("py")
    described = {name.rsplit(".", 1)[-1] for name in [*python.objects, *python.modules]}
    for name, thing in public_names(importlib.import_module(app.config.symtutor_docs_package)):
        if not is_documented(thing):
            logger.warning("public name without a docstring: %s", name)
        elif name.rsplit(".", 1)[-1] not in described:
            logger.warning("public name missing from the API page: %s", name)


# 2. Claims -------------------------------------------------------------------------------------------------------


class Claim(NamedTuple):
    """One call of ``st.claim`` in a notebook, as it is written there."""

    page: str  # name of the document, without suffix
    name: str
    bound: str


def find_claims(book: Path) -> Iterator[Claim]:
    """Yield the claims of every paired notebook, in reading order of each."""
    for path in sorted(book.glob("*/[0-9][0-9]_*.md")):
        for cell in jupytext.read(path).cells:
            if cell.cell_type == "code":
                for call in claim_calls(cell.source):
                    yield Claim(path.relative_to(book).with_suffix("").as_posix(), *call)


def plain_python(source: str) -> str:
    """Replace the magics of a cell by ``pass``, so that Python can parse it."""
    return re.sub(r"^(\s*)[%!].*$", r"\1pass", source, flags=re.MULTILINE)


def claim_calls(source: str) -> Iterator[tuple[str, str]]:
    """Yield (name, bound) of each ``claim(...)`` in the source of one cell."""
    source = plain_python(source)
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    for call in sorted(calls, key=lambda node: node.lineno):
        if getattr(call.func, "attr", None) == "claim":
            name = call.args[0]
            given = {word.arg: ast.get_source_segment(source, word.value) for word in call.keywords}
            signs = {"equals": "= {}", "within": "± {}", "at_most": "≤ {}", "at_least": "≥ {}"}
            yield (
                spoken(name, source),
                " ".join(sign.format(given[word]) for word, sign in signs.items() if word in given),
            )


def spoken(name: ast.expr, source: str) -> str:
    """Return a claim's name as a reader would see it; what a loop fills in stands as ``⟨variable⟩``."""
    if isinstance(name, ast.JoinedStr):
        return "".join(spoken(part, source) for part in name.values)
    if isinstance(name, ast.FormattedValue):
        return f"⟨{ast.unparse(name.value)}⟩"
    return str(name.value) if isinstance(name, ast.Constant) else ast.unparse(name)


class ClaimsDirective(SphinxDirective):
    """``{claims}``: a table of every claim, with its chapter and its bound."""

    def run(self) -> list[nodes.Node]:  # noqa: D102
        rows = ["| Chapter | Claim | Bound |", "|---|---|---|"]
        for claim in find_claims(Path(self.env.srcdir)):
            rows.append(f"| {{doc}}`/{claim.page}` | {claim.name} | {claim.bound} |".replace("\n", " "))
        table = nodes.container()
        self.state.nested_parse(StringList(rows, source="claims"), self.content_offset, table)
        return [nodes.paragraph(text=f"There are {len(rows) - 2} claims."), table]


# 3. Types and names ----------------------------------------------------------------------------------------------


def short_type(annotation: Any, config) -> str | None:
    """Write jaxtyping's types as they are in the source; leave others to the extension."""
    if annotation is jax.Array:
        return ":py:class:`jax.Array`"
    if getattr(annotation, "__module__", "").startswith("jaxtyping"):
        return f"``{annotation.__name__}``"
    return None


def link_name(app, env, node, text):
    """Link what no page answers as it stands: types of other libraries, and `names` of ours in docstrings."""
    target = node.get("reftarget", "")
    if target in ELSEWHERE:
        return nodes.reference("", "", text, internal=False, refuri=ELSEWHERE[target])
    if node.get("reftype") != "obj":
        return None
    python = env.get_domain("py")
    ours = [name for name in python.objects if name.endswith(f".{target}")]
    if len(ours) != 1:  # not a name, or not one name: shown as code
        return text
    return python.resolve_xref(env, node["refdoc"], app.builder, "obj", ours[0], node, text)


def skip_member(app, what, name, thing, skip, options):
    """Leave out a module's helpers, and "Alias for field number 0": a NamedTuple's docstring tells of its fields."""
    public = public_names(importlib.import_module(app.config.symtutor_docs_package))
    helper = what == "module" and not any(thing is other for _, other in public)
    return True if helper or type(thing).__name__ == "_tuplegetter" else None


def drop_return_of_none(app, what, name, thing, options, lines):
    """Say nothing of functions that return nothing: the types extension would, and in the midst of what they raise."""
    lines[:] = [line for line in lines if not re.fullmatch(r":rtype:[^|]*None[\\`]+", line)]


def setup(app) -> dict[str, bool]:
    """Register all three with Sphinx."""
    app.add_config_value("symtutor_docs_package", "symtutor", "env")
    app.add_directive("claims", ClaimsDirective)
    app.connect("env-check-consistency", check_public_names)
    app.connect("missing-reference", link_name)
    app.connect("autodoc-skip-member", skip_member)
    app.connect("autodoc-process-docstring", drop_return_of_none, priority=900)
    app.connect("config-inited", lambda app, config: setattr(config, "typehints_formatter", short_type))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
