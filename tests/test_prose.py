"""Guards of the prose: numbers are claimed, terms linked, abbreviations and symbols explained, exercises solved.

Like the guards of the notebooks, each returns the faults it found as sentences, and the end of this file plants faults
and sees them found.
"""

import ast
import re
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import jupytext
import nbformat
import numpy as np
import pytest

import symtutor as st
from symtutor.exercises import EXERCISES

ROOT = Path(__file__).parents[1]
BOOK = ROOT / "book"
sys.path.insert(0, str(BOOK / "_ext"))
from symtutor_docs import plain_python  # noqa: E402

PAGES = sorted(BOOK.glob("*/[0-9][0-9]_*.md"))
CHAPTERS = [path for path in PAGES if path.parent.name != "start"]  # with the whole anatomy
NAMES = {"JAX", "SO"}  # that need no words before them
GREEK = re.findall(
    r"\w+",
    "alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa lambda mu nu xi pi rho sigma tau "
    "upsilon phi varphi chi psi omega Gamma Delta Theta Lambda Xi Pi Sigma Phi Psi Omega ell",
)


# Reading a page ------------------------------------------------------------------------------------------------------


def markdown(page):
    return "\n\n".join(cell.source for cell in page.cells if cell.cell_type == "markdown")


def captions(page):
    """Return caption and alt text of all figures."""
    words = [cell.metadata.get("mystnb", {}) for cell in page.cells if cell.cell_type == "code"]
    return "\n\n".join(w.get("figure", {}).get("caption", "") + "\n\n" + w.get("image", {}).get("alt", "") for w in words)


def code(page):
    return [ast.parse(plain_python(cell.source)) for cell in page.cells if cell.cell_type == "code"]


def opening(page):
    """Return the box at the top: questions, abilities, needs, times."""
    found = re.search(r"^:::+\{admonition\} (?:In this chapter|On this page)\n(.*?)^:::+$", markdown(page), re.M | re.S)
    return found[1] if found else ""


def prose(page, math=False):
    """Return the running text: no opening box, headings, titles, options, code, targets of links, nor (unless asked) math."""
    text = markdown(page).replace(opening(page), "")
    text = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
    text = re.sub(r"^(#|:::|:[\w-]+:).*$", "", text, flags=re.M)
    text = re.sub(r"^\([\w-]+\)=$", "", text, flags=re.M)
    text = re.sub(r"(\{[\w:]+\}`[^`]*`)|``.*?``|`[^`]*`", r"\1", text)  # roles stay
    text = re.sub(r"\]\([^)\s]*\)", "]", text)
    text = re.sub(r"\*Parameter-Level Attribution[^*]*\*", "", text)  # the title of the source
    return text if math else re.sub(r"\$\$.*?\$\$(\s*\([\w-]+\))?|\$[^$]*\$", " ", text, flags=re.S)


def formulas(page):
    return re.findall(r"\$\$(.*?)\$\$|\$([^$]+)\$", prose(page, math=True), flags=re.S)


# The guards ----------------------------------------------------------------------------------------------------------

NUMBER = re.compile(
    r"10\^\{?(?P<power>-?\d+)\}?"
    r"|(?<![\w.])(?P<percent>\d+(?:\.\d+)?)(?:\s|\\,)?(?:\\?%|per\s?cent\b)"
    r"|(?<![\w.])(?P<times>\d+(?:\.\d+)?)(?:[\s-]+times\b|-fold|x\b|\s?\$?(?:×|\\times\$))"
    r"|\bfactor\s+(?:of\s+)?\$?(?P<factor>\d+(?:\.\d+)?)"
    r"|(?<!\w)(?P<number>\d+(?:\.\d+)?[eE]-?\d+|\d*\.\d+)(?!\d|\.\d)"
)


def unclaimed_number(page):
    """A number that is measured or set must be a literal of the code beside it, in a claim or as a setting, or be cited."""
    literals = {
        float(node.value)
        for tree in code(page)
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and type(node.value) in (int, float)
    }
    faults = []
    for sentence in re.split(r"\n\s*\n|(?<=[.!?:])\s", prose(page, math=True) + "\n\n" + captions(page)):
        for match in NUMBER.finditer(sentence):
            kind, text = match.lastgroup, match[match.lastgroup]
            meant = [float("1e" + text if kind == "power" else text)]
            meant += [meant[0] / 100] if kind == "percent" else []
            if "{cite" not in sentence and not any(abs(a - b) <= 1e-9 * abs(b) for a in literals for b in meant):
                faults.append(f"{match[0]!r} is in no code cell: {' '.join(sentence.split())[:90]!r}")
    return faults


def glossary_terms():
    text = (BOOK / "reference" / "glossary.md").read_text()
    block = re.search(r"```\{glossary\}\n(.*?)```", text, re.S)[1]
    return [line for line in block.splitlines() if line.strip() and not line.startswith((" ", ":"))]


def unlinked_term(page):
    """A term of the glossary is linked where the running text uses it first."""
    text, faults = " ".join(prose(page).split()), []
    linked = re.sub(r"\{term\}`([^`<]*)(?:<([^>]*)>)?`", lambda m: f"\0{(m[2] or m[1]).strip().lower()}\0", text)
    linked = re.sub(r"\{[\w:]+\}`[^`]*`", "", linked)
    longest = sorted(glossary_terms(), key=len, reverse=True)
    for term in longest:
        word = re.escape(term.lower()).replace(r"\ ", r"[\s-]+")
        longer = [other.lower() for other in longest if term.lower() in other.lower() and other != term]
        masked = linked.lower()
        for other in longer:
            masked = re.sub(rf"\0{re.escape(other)}\0|\b{re.escape(other)}s?\b", "", masked)
        first = re.search(rf"(\0)?\b{word}(?:s|es)?\b(?(1)\0)", masked)
        if first and not first[1]:
            faults.append(f"{term!r} is not linked at first: {masked[max(0, first.start() - 40) : first.end() + 20]!r}")
    return faults


def undefined_abbreviation(page):
    """Words first, then the abbreviation in parentheses; or the glossary has it."""
    text = re.sub(r"\{[\w:]+\}`[^`]*`", "", prose(page)) + captions(page)
    known = (markdown(page) + (BOOK / "reference" / "glossary.md").read_text()).replace("*", "")
    found = set(re.findall(r"\b[A-Z]{2,}\d?\b|\b[A-Z]+\d+\b", text)) - NAMES
    found = {word for word in found if not re.fullmatch(r"P\d+", word)}  # propositions
    return [f"{word!r} is not defined" for word in sorted(found) if not re.search(rf"\((?:\w+[ -])?{word}s?\)", known)]


def letters(formula):
    """Return the letters of a formula: Greek by name, Latin by themselves."""
    formula = re.sub(r"\\(?:text|mathrm|operatorname|label|begin|end|tag)\*?\{[^}]*\}", " ", formula)
    names = set(re.findall(r"\\([A-Za-z]+)", formula)) & set(GREEK)
    return names | set(re.findall(r"[A-Za-z]", re.sub(r"\\[A-Za-z]+", " ", formula)))


def known_letters():
    text = (BOOK / "reference" / "notation.md").read_text()
    return set().union(*(letters(formula) for formula in re.findall(r"\$([^$]+)\$", text)))


def unknown_symbol(page):
    """The letters of formulas are those of the notation page."""
    found = set().union(*(letters(a or b) for a, b in formulas(page)), set())
    return [f"{letter!r} is not on the notation page" for letter in sorted(found - known_letters())]


def exercises(page):
    """Return label, text and kind of every exercise."""
    found = re.findall(r"^(:::+)\{exercise\}[^\n]*\n:label: ([\w-]+)\n(.*?)^\1$", markdown(page), re.M | re.S)
    return [(label, text, (re.search(r"\*(\w+)\.\*", text) or [None, None])[1]) for _, label, text in found]


def unsolved_exercise(page):
    text = markdown(page)
    return [
        f"exercise {label} has no folded solution"
        for label, _, _ in exercises(page)
        if not re.search(rf"\{{solution\}} {label}\n:class: dropdown", text)
    ]


def incomplete_anatomy(page):
    text, box = markdown(page), opening(page)
    promised = ("**Questions.**", "**You will be able to**", "**You need**")
    faults = [f"the opening box lacks {words!r}" for words in promised if words not in box]
    if not re.search(r"\*\*Reading\*\*\s+takes\s+(?:about\s+)?\d+\s+minutes,\s+\*\*running\*\*\s+about\s+\d+\s+seconds", box):
        faults.append("the opening box does not say how long reading and running take")
    parts = ("## What could go wrong", ":::{admonition} Key points", "## Exercises", "## Quiz", "## Further reading")
    faults += [f"no {part!r}" for part in parts if part not in text]
    kinds = [kind for _, _, kind in exercises(page)]
    wanted = ("Pencil", "Code", "Experiment", "Transfer")
    faults += [f"no exercise of the kind {kind!r}" for kind in wanted if kind not in kinds]
    if len(kinds) < 4:
        faults.append(f"{len(kinds)} exercises; expected at least four")
    if text.count("dropdown hint") < 2:
        faults.append("no quiz with answers")
    return faults


def stubs(page):
    """Return the stubs of exercises that check themselves, by name of the exercise."""
    blocks = [block for _, text, _ in exercises(page) for block in re.findall(r"```python\n(.*?)```", text, re.S)]
    return {name: block for block in blocks for name in re.findall(r'st\.exercise\("([^"]+)"\)', block)}


def stub_passes_or_is_not_solved(page):
    """The stub as the reader gets it fails its check, and a cell that the suite runs passes the same check."""
    faults, cells = [], "\n".join(ast.unparse(tree) for tree in code(page))
    for name, stub in stubs(page).items():
        try:
            exec(compile(stub, name, "exec"), {"jax": jax, "jnp": jnp, "np": np, "st": st})
            faults.append(f"the stub of {name!r} passes")
        except st.ExerciseError as error:
            if "returned nothing yet" not in str(error):
                faults.append(f"the stub of {name!r} does not get as far as to return nothing: {error}")
        except Exception as error:
            faults.append(f"the stub of {name!r} does not get as far as the check: {error!r}")
        if f"st.exercise('{name}').check(" not in cells:
            faults.append(f"no cell checks a solution of {name!r}")
    return faults


GUARDS = [
    unclaimed_number,
    unlinked_term,
    undefined_abbreviation,
    unknown_symbol,
    unsolved_exercise,
    stub_passes_or_is_not_solved,
]


# The guards on the book ----------------------------------------------------------------------------------------------


def name(path):
    return str(path.relative_to(BOOK))


@pytest.mark.parametrize("guard", GUARDS)
@pytest.mark.parametrize("path", PAGES, ids=name)
def test_page(path, guard):
    assert guard(jupytext.read(path)) == []


@pytest.mark.parametrize("path", CHAPTERS, ids=name)
def test_chapter_has_the_whole_anatomy(path):
    assert incomplete_anatomy(jupytext.read(path)) == []


def test_every_exercise_that_checks_itself_is_set_once():
    assert sorted(name for path in CHAPTERS for name in stubs(jupytext.read(path))) == sorted(EXERCISES)


def test_every_proposition_is_stated_proved_and_linked_to_its_tests():
    texts = {path: markdown(jupytext.read(path)) for path in CHAPTERS}
    tests = (BOOK / "reference" / "propositions.md").read_text()
    for p in range(1, 15):
        where = [path for path, text in texts.items() if re.search(rf"\{{prf:\w+\}} .*\(P{p}\)", text)]
        assert len(where) == 1, f"P{p} is stated in {[name(path) for path in where]}"
        text = texts[where[0]]
        after = text[re.search(rf"\{{prf:\w+\}} .*\(P{p}\)", text).start() :]
        assert "{prf:proof}" in after, f"no proof after P{p}"
        assert f"(../reference/propositions.md#p{p})" in after, f"P{p} has no link to its tests"
        section = tests.split(f"## P{p}\n")[1].split("\n## P")[0]
        assert f"(../{where[0].parent.name}/{where[0].stem}.ipynb)" in section, f"P{p} is said to be stated elsewhere"


def test_page_of_propositions_shows_every_test_of_the_theory():
    shown = re.findall(r":pyobject: (test_p(\d+)_\w+)", (BOOK / "reference" / "propositions.md").read_text())
    written = re.findall(r"^def (test_p(\d+)_\w+)", (ROOT / "tests" / "test_theory.py").read_text(), re.M)
    assert shown == written and {int(p) for _, p in shown} == set(range(1, 15))


# The guards tested ---------------------------------------------------------------------------------------------------

GOOD = """\
# Title

:::{admonition} In this chapter
:class: note

**Questions.** Which? **You will be able to** do. **You need** nothing. **Reading** takes 5 minutes, **running** about
3 seconds on two cores. The residual is 0.777 here, and unlinked.
:::

The {term}`residual` $\\lVert Jc - \\eta\\rVert$ is at most 0.25, a residual of 5 % or $10^{-3}$.
The root mean square (RMS) of it falls 30
times. Elsewhere it was 0.3 {cite:t}`somebody2020`.

:::{exercise} One
:label: ex-one

*Code.* Write it.

```python
def rotation(t):
    ...

st.exercise("rotation").check(rotation)
```
:::

:::{solution} ex-one
:class: dropdown

So.
:::

:::{exercise} Two
:label: ex-two

*Pencil.* Show.
:::

:::{solution} ex-two
:class: dropdown

So.
:::

:::{exercise} Three
:label: ex-three

*Experiment.* Try.
:::

:::{solution} ex-three
:class: dropdown

So.
:::

:::{exercise} Four
:label: ex-four

*Transfer.* Try elsewhere.
:::

:::{solution} ex-four
:class: dropdown

So.
:::

## What could go wrong

:::{admonition} Key points
:::

## Exercises

## Quiz

:::{admonition} Which?
:class: dropdown hint

This.
:::

:::{admonition} And?
:class: dropdown hint

That.
:::

## Further reading
"""
CODE = """\
st.claim("a", a, at_most=0.25)
st.claim("b", b, equals=0.05, within=0.001)
st.claim("c", c, at_least=30)
st.exercise("rotation").check(rotation)
"""


def page_of(text, code=CODE, **figure):
    page = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell(text), nbformat.v4.new_code_cell(code)])
    page.cells[1].metadata["mystnb"] = {"figure": {"caption": "What", "name": "x"}, "image": {"alt": "Which"}} | figure
    return page


def test_guards_pass_a_good_page():
    page = page_of(GOOD)
    assert [fault for guard in [*GUARDS, incomplete_anatomy] for fault in guard(page)] == []


@pytest.mark.parametrize(
    "guard, old, new, found",
    [
        (unclaimed_number, "0.25, a", "0.26, a", "'0.26' is in no code cell"),
        (unclaimed_number, "5 %", "6 %", "'6 %' is in no code cell"),
        (unclaimed_number, "5 %", "2.5 %", "'2.5 %' is in no code cell"),
        (unclaimed_number, "falls 30", "falls by a factor of 7, 30", "'factor of 7' is in no code cell"),
        (stub_passes_or_is_not_solved, "def rotation(t)", "def rotation()", "does not get as far as to return nothing"),
        (unclaimed_number, "10^{-3}", "10^{-4}", "'10^{-4}' is in no code cell"),
        (unclaimed_number, "falls 30", "falls 31", "'31\\ntimes' is in no code cell"),
        (unclaimed_number, "{cite:t}`somebody2020`", "by somebody", "'0.3' is in no code cell"),
        (unclaimed_number, "0.25, a", "2.5e-1, or 3e-7, a", "'3e-7' is in no code cell"),
        (unlinked_term, "The {term}`residual`", "The residual", "'Residual' is not linked"),
        (unlinked_term, "The {term}`residual`", "The residuals, or {term}`residual`", "'Residual' is not linked"),
        (unlinked_term, "The {term}`residual`", "A resolved flow has a {term}`residual`", "'Resolved flow' is not linked"),
        (undefined_abbreviation, "root mean square (RMS)", "RMS", "'RMS' is not defined"),
        (undefined_abbreviation, "root mean square (RMS)", "BDF2", "'BDF2' is not defined"),
        (unknown_symbol, "\\eta", "\\Psi", "'Psi' is not on the notation page"),
        (unknown_symbol, "Jc", "Zc", "'Z' is not on the notation page"),
        (unsolved_exercise, "{solution} ex-two\n:class: dropdown", "{note}", "exercise ex-two has no"),
        (unsolved_exercise, "{solution} ex-two\n:class: dropdown", "{solution} ex-two", "exercise ex-two has no"),
        (incomplete_anatomy, "## What could go wrong", "## Else", "no '## What could go wrong'"),
        (incomplete_anatomy, "{admonition} Key points", "{note}", "Key points"),
        (incomplete_anatomy, "*Transfer.*", "*Code.*", "no exercise of the kind 'Transfer'"),
        (incomplete_anatomy, "{exercise} Four", "{note} Four", "3 exercises"),
        (incomplete_anatomy, "**running** about\n3 seconds", "soon", "how long reading and running take"),
        (incomplete_anatomy, "**Questions.**", "", "the opening box lacks '**Questions.**'"),
        (incomplete_anatomy, ":class: dropdown hint", ":class: hint", "no quiz with answers"),
        (stub_passes_or_is_not_solved, "    ...", "    return st.so2().subgroup(t)", "passes"),
        (stub_passes_or_is_not_solved, "    ...", "    ...\n\nnothing", "does not get as far"),
    ],
)
def test_guards_find(guard, old, new, found):
    assert old in GOOD
    assert any(found in fault for fault in guard(page_of(GOOD.replace(old, new))))


def test_solution_that_is_not_run_is_found():
    faults = stub_passes_or_is_not_solved(page_of(GOOD, CODE.replace("st.exercise", "print")))
    assert faults == ["no cell checks a solution of 'rotation'"]


def test_numbers_of_captions_and_alt_texts_are_read():
    assert unclaimed_number(page_of(GOOD, figure={"caption": "It is 0.99."}))
    assert unclaimed_number(page_of(GOOD, image={"alt": "It falls 77 times."}))
