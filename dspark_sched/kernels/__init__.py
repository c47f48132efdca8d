"""All Numba code. Imports nothing of ours; never raises; writes into arrays the caller owns."""
