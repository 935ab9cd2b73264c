"""What PolyStep is compared with, each in place of PolyStep in `fit`.

    InSubspace    OpenAiEs, CmaEs or any other population method, on a subspace's coordinates
    RandomSearch  best of N random moves, kept if better
    Spsa, MeZo    a derivative along one direction from two losses
    Eggroll       low-rank perturbations, in its own subspace
    AdamTwin      backpropagation through a smooth twin

`minimize` runs a population method on any function of vectors.
"""

from hardstep.rivals.adam_twin import AdamTwin
from hardstep.rivals.base import Population, Resumable, minimize
from hardstep.rivals.cma_es import CmaEs
from hardstep.rivals.eggroll import Eggroll, standardized
from hardstep.rivals.in_subspace import InSubspace
from hardstep.rivals.mezo import MeZo
from hardstep.rivals.openai_es import OpenAiEs, centred_ranks
from hardstep.rivals.optimizer import Rival
from hardstep.rivals.random_search import RandomSearch
from hardstep.rivals.spsa import Spsa

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
