"""Directions, rotations, probe positions and the particles they belong to."""

from hardstep.geometry.particles import ParticleMap, num_particles
from hardstep.geometry.polytopes import Cube, Orthoplex, Polytope, Simplex
from hardstep.geometry.probes import Jitter, Mollifier, probe_fractions
from hardstep.geometry.rotations import Biased, Haar, Rotation, haar

__all__ = [
    "Biased",
    "Cube",
    "Haar",
    "Jitter",
    "Mollifier",
    "Orthoplex",
    "ParticleMap",
    "Polytope",
    "Rotation",
    "Simplex",
    "haar",
    "num_particles",
    "probe_fractions",
]
