"""The token rule, and the proofs that scheduling leaves the output law alone."""
