"""The token rule, and the proofs that scheduling leaves the output law alone.

Hand in a policy and get the law of its output, the target's, and their distance::

    output_law(policy, random_world(2, 2, 2, seed=0), num_steps=2).total_variation
"""

from .exact import OutputLaw, block_outcomes, output_law, target_law, total_variation
from .montecarlo import GoodnessOfFit, detection_power, goodness_of_fit
from .sampling import verify_block
from .trials import simulated_counts
from .worlds import World, random_world

__all__ = [
    "GoodnessOfFit",
    "OutputLaw",
    "World",
    "block_outcomes",
    "detection_power",
    "goodness_of_fit",
    "output_law",
    "random_world",
    "simulated_counts",
    "target_law",
    "total_variation",
    "verify_block",
]
