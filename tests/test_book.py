"""The built site, as a reader gets it: strict, complete, and at home without a network."""

import re
import subprocess
import sys
import tomllib
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
import yaml

ROOT = Path(__file__).parents[1]
BUILD = ROOT / ".cache" / "test_book"
HTML = BUILD / "_build" / "html"
MOST_BYTES = 1_500_000  # a chapter with its pictures

TOC = yaml.safe_load((ROOT / "book" / "_toc.yml").read_text())
CHAPTERS = [entry["file"].removesuffix(".ipynb") for part in TOC["parts"] for entry in part["chapters"]]
PAGES = [TOC["root"], *CHAPTERS]
MADE_BY_SPHINX = {"genindex", "search", "py-modindex", "prf-prf", "proof-index"}


def build(*options):
    command = [Path(sys.executable).with_name("jupyter-book"), "build", *options, "--all", "-W", "-n", "--keep-going"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


@pytest.fixture(scope="module")
def site():
    """The site by the command of `make book`, but beside it, so that no test breaks what is being read."""
    run = build("book", "--path-output", BUILD)
    assert run.returncode == 0, run.stderr
    return HTML


class Tags(HTMLParser):
    """All start tags of a page, as (name, attributes)."""

    def __init__(self, page):
        super().__init__()
        self.found = []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, {key: value or "" for key, value in attrs}))


@cache
def tags(path):
    return Tags(path.read_text()).found


def own_pages():
    return [HTML / f"{page}.html" for page in PAGES]


def test_site_holds_the_listed_pages_and_no_others(site):
    built = {path.relative_to(site).with_suffix("").as_posix() for path in site.rglob("*.html")}
    built = {page for page in built if not page.startswith(("_modules/", "_static/", "_sources/"))}
    assert built - MADE_BY_SPHINX == set(PAGES)


def test_no_page_shows_an_error(site):
    for path in own_pages():
        classes = {name for _, attributes in tags(path) for name in attributes.get("class", "").split()}
        assert not classes & {"stderr", "traceback", "system-message"}, path


def test_no_page_loads_anything_from_another_host(site):
    loads = {"script": "src", "img": "src", "iframe": "src", "source": "src", "video": "src", "object": "data"}
    for path in site.rglob("*.html"):
        for tag, attributes in tags(path):
            address = attributes.get(loads.get(tag, ""), "")
            if tag == "link" and attributes.get("rel") not in ("canonical", "next", "prev", "search", "index", "author"):
                address = attributes.get("href", "")
            assert not urlsplit(address).netloc, f"{path}: <{tag}> loads {address}"
    for path in site.rglob("*.css"):
        assert not re.search(r"(@import|url\()\s*['\"]?(https?:)?//", path.read_text()), path


def test_every_picture_has_words(site):
    for path in own_pages():
        for tag, attributes in tags(path):
            if tag == "img" and "logo" not in attributes.get("class", ""):
                alt = attributes.get("alt", "")
                assert alt and "/" not in alt, f"{path}: <img src={attributes.get('src')}> has alt {alt!r}"


def test_links_within_the_site_arrive(site):
    @cache
    def anchors(path):
        return {attributes[key] for _, attributes in tags(path) for key in ("id", "name") if key in attributes}

    for path in own_pages():
        for tag, attributes in tags(path):
            address = urlsplit(attributes.get("href", "")) if tag == "a" else urlsplit("")
            if address.scheme or address.netloc or not (address.path or address.fragment):
                continue
            target = (path.parent / unquote(address.path)).resolve() if address.path else path
            assert target.is_file(), f"{path}: no file for {address.geturl()}"
            if address.fragment and target.suffix == ".html":
                assert unquote(address.fragment) in anchors(target), f"{path}: no anchor for {address.geturl()}"


@pytest.mark.parametrize("page", CHAPTERS)
def test_chapter_is_light(site, page):
    path = site / f"{page}.html"
    pictures = {path.parent / attributes["src"] for tag, attributes in tags(path) if tag == "img" and attributes.get("src")}
    assert path.stat().st_size + sum(picture.stat().st_size for picture in pictures) <= MOST_BYTES


def test_notebooks_open_where_the_configuration_says(site):
    address = yaml.safe_load((ROOT / "_config.yml").read_text())["repository"]["url"]
    for entry in (entry["file"] for part in TOC["parts"] for entry in part["chapters"]):
        if entry.endswith(".ipynb"):
            links = [attributes.get("href", "") for tag, attributes in tags(HTML / f"{entry[:-6]}.html") if tag == "a"]
            project = urlsplit(address).path
            assert f"https://colab.research.google.com/github{project}/blob/main/book/{entry}" in links
            assert any(link.startswith(f"https://mybinder.org/v2/gh{project}/main") for link in links)


def test_environment_agrees_with_pyproject():
    """Same names and same bounds, but for what conda calls otherwise and for what only conda's users need."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["book"]]
    listed = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    only_conda, by_pip = {"python", "pip", "jupyterlab"}, {"matfree"}  # what -e . brings, since conda may not have it

    def split(line):
        name, bound = re.fullmatch(r"([\w-]+)(.*)", line).groups()
        return name.removesuffix("-base"), bound

    conda = dict(split(line) for line in listed if isinstance(line, str))
    pypi = {name: bound for name, bound in map(split, wanted) if name not in by_pip}
    assert conda.keys() - only_conda == pypi.keys()
    assert all(conda[name] == bound for name, bound in pypi.items() if bound)
    assert {"pip": ["-e ."]} in listed


# The test of the strictness ----------------------------------------------------------------------------------------

FAULTS = {
    "docstring": ("def twice(x):\n    return 2 * x\n", "public name without a docstring: stub.twice"),
    "made up by Python": (
        "from typing import NamedTuple\nclass Pair(NamedTuple):\n    x: int\n", "public name without a docstring: stub.Pair"
    ),
    "page": ('def hidden(x):\n    """Return x."""\n', "missing from the API page: stub.hidden"),
}  # fmt: skip


@pytest.mark.parametrize("source, message", FAULTS.values(), ids=FAULTS)
def test_build_fails_on_an_undescribed_public_name(tmp_path, source, message):
    """In a book of one page about a library of one module."""
    (tmp_path / "stub.py").write_text('"""A stub."""\n' + source)
    (tmp_path / "index.rst").write_text("Stub\n====\n\n.. automodule:: stub\n   :members:\n   :exclude-members: hidden\n")
    (tmp_path / "conf.py").write_text(
        f"import sys\nsys.path[:0] = [{str(tmp_path)!r}, {str(ROOT / 'book' / '_ext')!r}]\n"
        "extensions = ['sphinx.ext.autodoc', 'symtutor_docs']\nsymtutor_docs_package = 'stub'\n"
        "suppress_warnings = ['config.cache']\n"
    )
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", tmp_path, tmp_path / "out"]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 1 and message in run.stderr, run.stderr
    assert run.stderr.count("WARNING") == 1, run.stderr
