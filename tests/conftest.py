"""The library is tested in float64, its own unit of account; tests of float32 ask for it by dtype."""

import jax

jax.config.update("jax_enable_x64", True)
