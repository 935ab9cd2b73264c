"""What PolyStep is compared with, each in place of PolyStep in `fit`.

    InSubspace    OpenAiEs, CmaEs or any other population method, on a subspace's coordinates
    RandomSearch  best of N random moves, kept if better
    Spsa, MeZo    a derivative along one direction from two losses
    Eggroll       low-rank perturbations of matrices
    AdamTwin      backpropagation through a smooth twin

`minimize` runs a population method on any function of vectors.
"""

from hardstep.baselines.adam_twin import AdamTwin
from hardstep.baselines.base import Baseline
from hardstep.baselines.cma_es import CmaEs
from hardstep.baselines.eggroll import Eggroll, standardize
from hardstep.baselines.mezo import MeZo
from hardstep.baselines.openai_es import OpenAiEs, center_ranks
from hardstep.baselines.population import InSubspace, Population, Resumable, minimize
from hardstep.baselines.random_search import RandomSearch
from hardstep.baselines.spsa import Spsa

__all__ = [
    "AdamTwin",
    "Baseline",
    "CmaEs",
    "Eggroll",
    "InSubspace",
    "MeZo",
    "OpenAiEs",
    "Population",
    "RandomSearch",
    "Resumable",
    "Spsa",
    "center_ranks",
    "minimize",
    "standardize",
]
