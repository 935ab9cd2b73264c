"""What PolyStep is compared with, each in place of PolyStep in `fit`.

    InSubspace    OpenAiEs, CmaEs or any other population method, on a subspace's coordinates
    RandomSearch  best of N random moves, kept if better
    Spsa, MeZo    a derivative along one direction from two losses
    Eggroll       low-rank perturbations, in its own subspace
    AdamTwin      backpropagation through a smooth twin

`minimize` runs a population method on any function of vectors.
"""

from hardstep.baselines.adam_twin import AdamTwin
from hardstep.baselines.base import Population, Resumable, minimize
from hardstep.baselines.cma_es import CmaEs
from hardstep.baselines.eggroll import Eggroll, standardized
from hardstep.baselines.in_subspace import InSubspace
from hardstep.baselines.mezo import MeZo
from hardstep.baselines.openai_es import OpenAiEs, centred_ranks
from hardstep.baselines.optimizer import Rival
from hardstep.baselines.random_search import RandomSearch
from hardstep.baselines.spsa import Spsa

__all__ = [
    "AdamTwin",
    "CmaEs",
    "Eggroll",
    "InSubspace",
    "MeZo",
    "OpenAiEs",
    "Population",
    "RandomSearch",
    "Resumable",
    "Rival",
    "Spsa",
    "centred_ranks",
    "minimize",
    "standardized",
]
