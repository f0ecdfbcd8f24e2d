"""The tables over seeds are what the code of today would measure."""

import importlib.util
from pathlib import Path

import jax
import numpy as np
import pytest

from symtutor import tables

SWEEPS = sorted((Path(__file__).parents[1] / "book").glob("*/sweep_*.py"))


def potential_of_the_hat(module, seed):
    """The first half of a row; the whole of one takes minutes."""
    data_key, init_key, _ = jax.random.split(jax.random.key(seed), 3)
    data = module.hat.trajectories(data_key)
    return module.potential_row(module.hat.train(init_key, module.ham, module.SETTINGS["steps"], data).params["V"])


def before_the_repair(module, seed):
    """Both networks as trained, and their averages; the repairs of one row take a minute."""
    return module.before(seed, "quadrant unseen")[-1] | module.before(seed, "half unseen")[-1]


def ridge_paths_of_the_residual(module, seed):
    """All four networks trained and lifted, down to the ridge 1e-7: below it rounding has a say."""
    row = module.ridge_paths(seed, module.networks(seed)[0])
    return {key: value for key, value in row.items() if not key.endswith(("1e-08", "1e-09"))}


PART_OF = {
    "mexican_hat": potential_of_the_hat,
    "repair": before_the_repair,
    "residual": ridge_paths_of_the_residual,
}


def name_of(script):
    return script.stem.removeprefix("sweep_")


@pytest.mark.parametrize("script", SWEEPS, ids=name_of)
def test_table_is_not_stale(script):
    assert tables.read_table(name_of(script))["source"] == tables.source_hash(script), "run make sweep"


@pytest.mark.parametrize("script", SWEEPS, ids=name_of)
def test_one_row_comes_out_again(script):
    spec = importlib.util.spec_from_file_location(script.stem, script)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    stored = tables.read_table(name_of(script))
    assert stored["settings"] == module.SETTINGS
    assert [row["seed"] for row in stored["rows"]] == list(module.SEEDS)
    row = stored["rows"][-1]
    again = PART_OF.get(name_of(script), lambda module, seed: module.measure(seed))(module, row["seed"])
    assert again and set(again) <= set(row)
    for key, value in again.items():
        # training amplifies rounding: measured quantities come out alike, not equal; those near 0 are noise
        np.testing.assert_allclose(float(value), row[key], rtol=0.2, atol=1e-3, err_msg=key)


def test_hash_sees_code_and_not_prose(tmp_path):
    script = tmp_path / "sweep.py"
    script.write_text('"""Doc."""\nridge = 1e-6  # a comment\n')
    first = tables.source_hash(script)
    script.write_text('"""Another."""\n\n# more prose\nridge = 1e-6\n')
    assert tables.source_hash(script) == first
    script.write_text('"""Doc."""\nridge = 1e-5\n')
    assert tables.source_hash(script) != first


def test_unknown_table_is_named():
    with pytest.raises(ValueError, match="name is 'annulos'; expected one of .*annulus"):
        tables.seed_table("annulos")


def test_hash_sees_the_modules_behind_the_names_and_no_others(tmp_path, monkeypatch):
    script = tmp_path / "sweep.py"
    script.write_text("st.lift(f, params, st.polar_probes(), tangent)\n")
    seen = []
    monkeypatch.setattr(tables, "_code_lines", lambda path: seen.append(path.stem) or [])
    tables.source_hash(script)
    assert {"lifting", "gram", "solvers", "sensitivity", "tangents", "groups", "probes"} == set(seen) - {"sweep"}
