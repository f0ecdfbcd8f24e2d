"""The library is tested in float64, its own unit of account; tests of float32 ask for it by dtype."""

import os
from pathlib import Path

# What one test or notebook compiled serves the next: most of them train and lift the same networks. One folder a worker, since
# two that write the same file could read half of it. `make clean` empties it.
_worker = os.environ.get("PYTEST_XDIST_WORKER", "alone")
os.environ["JAX_COMPILATION_CACHE_DIR"] = str(Path(__file__).parents[1] / ".cache" / "jax" / _worker)
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"

import jax  # noqa: E402, it reads these when it is imported

jax.config.update("jax_enable_x64", True)
