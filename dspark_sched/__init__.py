"""Confidence-scheduled speculative decoding (DSpark, arXiv 2607.05147) for any engine.

Names load on first use, so importing the package costs nothing until something is called.
"""

from importlib import import_module

__version__ = "0.1.0"

_HOME = {
    "Acceptance": "types",
    "AcceptanceEstimator": "allocation.estimator",
    "AcceptanceSummary": "types",
    "Agreement": "allocation.agreement",
    "Allocation": "types",
    "Batch": "types",
    "Calibration": "types",
    "CapacityPlan": "types",
    "ConstantSurvival": "allocation.estimator",
    "Decision": "allocation.decision",
    "Delayed": "allocation.delayed",
    "DelayedScheduler": "allocation.scheduler",
    "Drafting": "allocation.drafting",
    "EarlyStop": "allocation.greedy",
    "Finding": "types",
    "FixedLength": "allocation.baselines",
    "InputError": "checks",
    "Layout": "allocation.layout",
    "Log": "types",
    "LoopOptions": "allocation.options",
    "LosslessnessError": "checks",
    "Monitor": "monitoring.monitor",
    "RequestCost": "profile",
    "SimulationResult": "types",
    "SpsProfile": "profile",
    "Status": "types",
    "StepPlan": "types",
    "Threshold": "allocation.threshold",
    "Uniform": "allocation.uniform",
    "VerifiedBlock": "types",
    "acceptance": "calibration.acceptance",
    "admit": "allocation.admission",
    "agree": "allocation.agreement",
    "allocate": "allocation.greedy",
    "fit_profile": "profiling.fit",
    "fit_sts": "calibration.temperature",
    "layout": "allocation.layout",
    "lint_profile": "profiling.lint",
    "load_calibration": "engines.temperatures",
    "load_profile": "engines.profiles",
    "plan_capacity": "allocation.capacity",
    "read_log": "logs.reader",
    "read_summary": "logs.summary",
    "read_timings": "profiling.timings",
    "resolve_setup": "engines.setup",
    "save_calibration": "engines.temperatures",
    "save_profile": "engines.profiles",
    "simulate": "simulation.comparison",
    "survival": "allocation.greedy",
    "verify_block": "verification.sampling",
    "warm_up": "warmup",
}

__all__ = sorted([*_HOME, "__version__"])


def __getattr__(name):
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f".{_HOME[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__():
    return __all__
