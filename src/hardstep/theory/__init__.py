"""The method's theorems, checked numerically: what `hardstep theory` runs, not for users' programs.

One file per theorem, or several that begin with its name. Every check measures numbers, says what
they should be, and has controls, wrong objects that must fail.

    theorem                             file                          checks
    smoothing-blowup                    smoothing_blowup              A1 A1-MC A2 A3
                                        smoothing_blowup_curved       A4 A5 A6 A7
    generic-section, blockwise-section  sections                      B1 B2 B3
    smooth-kernel                       smooth_kernel                 C1 C2 C2-MC C3
    two-kernels                         two_kernels                   C4 C5
    exact-step                          exact_step                    D1 D4 D5 D6
                                        exact_step_remainder          D2 D3 D7
    piecewise-smooth                    piecewise_smooth              E1 E2 E4 E7
                                        piecewise_smooth_saturation   J1 J2 J3
    optimal-rp                          optimal_rp                    E3
    occupancy                           occupancy                     E5 E6
    block-coupling                      block_coupling                E8 E9
    no-as-claim                         no_as_claim                   E10
    goldstein                           goldstein                     F1 F2 F3 F4 F5 F6
    fragility                           fragility                     G1 G10
    stable-schedules                    stable_schedules              G3 G6 G7 G8 G11
                                        stable_schedules_walks        G2 G4 G5
    confinement-ville                   confinement_ville             G9
    kl-softmax-endpoints                kl_softmax                    H1 H2 H3 H4 H5
    plateau-freeze                      plateau_freeze                H6
    ghost-drift                         ghost_drift                   H7 H8 H9 H10
    pwc-loss                            pwc_loss                      I1 I2
                                        pwc_loss_routing              I3 I4 I5 I6
                                        pwc_loss_trained              I7
    flat-pair                           flat_pair                     I8
    rl-policy-search                    rl_policy_search              K1 K2
    piecewise-constant                  piecewise_constant            L1 L2

`suite` has the contract of a check, `report` writes outcomes, `figures` draws. Checks share
`numerics`, `spheres`, `radii` (of probes), `steps` (the shipped step, and walks) and
`trained_networks`.
"""

import importlib
import pkgutil

from hardstep.theory.suite import Check, Evidence, Outcome, Setup, judge, list_checks

__all__ = ["Check", "Evidence", "Outcome", "Setup", "judge", "load_checks"]


def load_checks() -> list[Check]:
    """All checks, by group and number."""
    for module in pkgutil.iter_modules(__path__):
        if module.name != "figures":  # needs matplotlib and has no checks
            importlib.import_module(f"{__name__}.{module.name}")
    return list_checks()
