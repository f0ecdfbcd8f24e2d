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
WORKERS ?= 2

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
# The LAPACK that jaxlib calls keeps its threads spinning beside JAX's own: on two cores that costs more than they bring
# (one process half as fast again, two at once seven times slower).
export OPENBLAS_NUM_THREADS = 1

NOTEBOOKS = $(filter-out %/index.md, $(wildcard book/*/[0-9][0-9]_*.md))

.PHONY: book test run sweep bench serve clean

# --all: Sphinx repeats no warning for a page that it takes from its cache, so a second build would pass after a first that failed.
book: $(VENV)/.ready | .cache/tmp
	$(BIN)/jupyter-book build book --all -W -n --keep-going

# By file: a notebook's cells need each other, and so do tests that share one build.
# Hundreds of small programs that run once: compiled with less optimisation, notebooks and tests take three quarters of the time.
run test: export XLA_FLAGS += --xla_backend_optimization_level=1 --xla_llvm_disable_expensive_passes=true
test: $(VENV)/.ready | .cache/tmp
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile

# Always both: the text becomes the notebook, then the notebook is run, so that no stored output is older than its code.
# Without record_timing=False every run stamps every cell with the time; without coalescing, how prints fall into outputs is chance.
run: $(VENV)/.ready | .cache/tmp
	$(BIN)/jupytext --update --to ipynb $(NOTEBOOKS)
	$(BIN)/jupyter nbconvert --to notebook --inplace --execute --coalesce-streams --ExecutePreprocessor.record_timing=False \
	  --ExecutePreprocessor.timeout=600 $(NOTEBOOKS:.md=.ipynb)
	$(BIN)/python book/headline.py

sweep: $(VENV)/.ready | .cache/tmp
	@set -e; for script in $(wildcard book/*/sweep_*.py); do echo "== $$script"; $(BIN)/python -u $$script; done

bench: $(VENV)/.ready | .cache/tmp
	@set -e; for script in $(wildcard tests/benchmarks/*.py); do echo "== $$script"; $(BIN)/python -u $$script; done

serve: book
	$(BIN)/python -m http.server --bind localhost --directory _build/html $(PORT)

clean:
	rm -rf $(VENV) .cache _build build dist *.egg-info .pytest_cache .hypothesis .ruff_cache .jupyter_cache book/_build
	find . -name __pycache__ -prune -exec rm -rf {} + -o -name .ipynb_checkpoints -prune -exec rm -rf {} +

.cache/tmp:
	@mkdir -p $@

$(VENV)/.ready: pyproject.toml constraints.txt | .cache/tmp
	@$(PYTHON) -c 'import sys; sys.exit("symtutor needs Python 3.11 or newer" if sys.version_info < (3, 11) else 0)'
	@echo "setting up $(VENV): a minute or so, once"
	@if command -v uv >/dev/null; then \
	  uv venv --quiet --allow-existing --python $(PYTHON) $(VENV) && \
	  uv pip install --quiet --python $(BIN)/python -e '.[book,test]' -c constraints.txt; \
	else \
	  $(PYTHON) -m venv $(VENV) && \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[book,test]' -c constraints.txt; \
	fi
	@touch $@
