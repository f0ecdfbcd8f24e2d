"""symtutor: symmetry in trained networks, read and moved at the level of single parameters.

One line of data runs through it: ``f, params`` with `Probes` and a `Group` give a function-space tangent, `lift` turns it
into a parameter direction, `attribute` shares it out, and a flow follows it.
"""

import jax as _jax

from symtutor import figures
from symtutor.attribution import (
    Attribution,
    AttributionBand,
    SubsetCurve,
    attribute,
    attribution_band,
    greedy_scores,
    restrict,
    subset_check,
)
from symtutor.claims import ClaimError, claim
from symtutor.exercises import Exercise, ExerciseError, exercise
from symtutor.experiments import annulus, mexican_hat
from symtutor.fitting import Fit
from symtutor.flows import Trajectory, defect_left, fixed_flow, invariant_drift, orbit_error, resolved_flow
from symtutor.gram import LeafPlan, plan
from symtutor.groups import Group, cyclic, dilation, reflection, shear, so2
from symtutor.lifting import Lift, RidgePath, choose_ridge, exact_lift, lift
from symtutor.networks import Hamiltonian, Network, asrnn, hnn, mlp
from symtutor.probes import Probes, function_norm, inner_product, orbit_probes, polar_probes, probes_from_data
from symtutor.sensitivity import jacobian, pointwise_sensitivity, sensitivity
from symtutor.tables import seed_table
from symtutor.tangents import (
    AnchoredTangent,
    OrbitTangent,
    SymmetrizingTangent,
    anchored_tangent,
    equivariance_defect,
    equivariant_projection,
    orbit,
    orbit_tangent,
    orthogonality,
    symmetrizing_tangent,
)


def enable_x64() -> None:
    """Switch JAX to 64-bit floats, in which Jacobians should be solved. Call it before making any array.

    Example:
        >>> import jax.numpy as jnp, symtutor as st
        >>> st.enable_x64()
        >>> jnp.zeros(1).dtype
        dtype('float64')
    """
    _jax.config.update("jax_enable_x64", True)


__all__ = [
    "AnchoredTangent",
    "Attribution",
    "AttributionBand",
    "ClaimError",
    "Exercise",
    "ExerciseError",
    "Fit",
    "Group",
    "Hamiltonian",
    "LeafPlan",
    "Lift",
    "Network",
    "OrbitTangent",
    "Probes",
    "RidgePath",
    "SubsetCurve",
    "SymmetrizingTangent",
    "Trajectory",
    "anchored_tangent",
    "annulus",
    "asrnn",
    "attribute",
    "attribution_band",
    "choose_ridge",
    "claim",
    "cyclic",
    "defect_left",
    "dilation",
    "enable_x64",
    "equivariance_defect",
    "equivariant_projection",
    "exact_lift",
    "exercise",
    "figures",
    "fixed_flow",
    "function_norm",
    "greedy_scores",
    "hnn",
    "inner_product",
    "invariant_drift",
    "jacobian",
    "lift",
    "mexican_hat",
    "mlp",
    "orbit",
    "orbit_error",
    "orbit_probes",
    "orbit_tangent",
    "orthogonality",
    "plan",
    "pointwise_sensitivity",
    "polar_probes",
    "probes_from_data",
    "reflection",
    "resolved_flow",
    "restrict",
    "seed_table",
    "sensitivity",
    "shear",
    "so2",
    "subset_check",
    "symmetrizing_tangent",
]
