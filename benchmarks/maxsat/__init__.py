"""MAX-SAT from a hundred to a million variables: PolyStep and its baselines, recorded."""
