"""How fast the decisions are, as ratios to plain NumPy (and torch) in one run on one machine."""
