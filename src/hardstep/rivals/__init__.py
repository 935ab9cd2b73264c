"""What PolyStep is compared with: population methods that see a vector and a loss."""

from hardstep.rivals.base import Population, minimize
from hardstep.rivals.cma_es import CmaEs
from hardstep.rivals.openai_es import OpenAiEs

__all__ = ["CmaEs", "OpenAiEs", "Population", "minimize"]
