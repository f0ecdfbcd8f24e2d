# make book   set up and build the book            make test   set up and run every check
# make run    text to notebooks, then execute      make sweep  recompute the tables over seeds
# make bench  timings beside named peers           make serve  build and look at the book
# make clean  remove all that was made
#
# Needs Python 3.11 or newer and make. Everything that is written stays inside this folder.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
PORT ?= 8000

# Caches of pip, uv, Jupyter, IPython and matplotlib, and temporary files, go to .cache/ instead of the home folder.
CACHE = $(CURDIR)/.cache
export PIP_CACHE_DIR = $(CACHE)/pip
export UV_CACHE_DIR = $(CACHE)/uv
export XDG_CACHE_HOME = $(CACHE)/xdg
export MPLCONFIGDIR = $(CACHE)/matplotlib
export IPYTHONDIR = $(CACHE)/ipython
export JUPYTER_CONFIG_DIR = $(CACHE)/jupyter/config
export JUPYTER_DATA_DIR = $(CACHE)/jupyter/data
export JUPYTER_RUNTIME_DIR = $(CACHE)/jupyter/runtime
export TMPDIR = $(CACHE)/tmp
export PYTHONDONTWRITEBYTECODE =

NOTEBOOKS = $(filter-out %/index.md, $(wildcard book/*/[0-9][0-9]_*.md))

.PHONY: book test run sweep bench serve clean

$(VENV)/.ready: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("symtutor needs Python 3.11 or newer" if sys.version_info < (3, 11) else 0)'
	@mkdir -p $(TMPDIR)
	@echo "setting up $(VENV): a minute or so, once"
	@if command -v uv >/dev/null; then \
	  uv venv --quiet --allow-existing --python $(PYTHON) $(VENV) && \
	  uv pip install --quiet --python $(BIN)/python -e '.[book,test]' -c constraints.txt; \
	else \
	  $(PYTHON) -m venv $(VENV) && \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[book,test]' -c constraints.txt; \
	fi
	@touch $@
