"""What the library accepts as an array, and the sentences with which it refuses the rest."""

import re

import numpy as np
import pytest

import dspark_sched as ds

PROFILE = ds.SpsProfile([1, 2, 3], steps_per_second=[1.0, 0.9, 0.8])
C = [[0.9, 0.8], [0.7, 0.6]]


@pytest.mark.parametrize(
    "confidence",
    [
        C,
        np.array(C),
        np.array(C, dtype=np.float32),
        np.asfortranarray(C),
        np.array(C, dtype=">f8"),
        np.array([[*row, 0.5] for row in C])[:, :2],
        np.array(C)[::-1][::-1],
        memoryview(np.array(C)),
    ],
    ids=["list", "f64", "f32", "fortran", "big-endian", "strided", "reversed", "memoryview"],
)
def test_whatever_numpy_can_view_gives_the_same_lengths(confidence):
    assert ds.allocate(confidence, PROFILE).lengths.tolist() == [2, 2]


def test_a_read_only_array_is_accepted():
    confidence = np.array(C)
    confidence.flags.writeable = False
    assert ds.allocate(confidence, PROFILE).lengths.tolist() == [2, 2]


def test_half_precision_and_integers_are_widened():
    assert ds.allocate(np.ones((1, 2), np.float16), PROFILE).expected_tokens == 3.0
    assert ds.allocate(np.ones((1, 2), np.int8), PROFILE).expected_tokens == 3.0
    assert ds.survival([[1, 0]]).dtype == np.float64
    assert ds.survival(np.full((1, 2), 0.5, np.float16)).dtype == np.float16


class OnlyDlpack:
    """An array of another library: no __array__, only the exchange protocol."""

    def __init__(self, array, device=(1, 0)):
        self.array, self.device = array, device

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.device


def test_a_cpu_dlpack_array_is_viewed():
    assert ds.allocate(OnlyDlpack(np.array(C)), PROFILE).lengths.tolist() == [2, 2]


def test_a_device_array_is_refused_with_the_remedy():
    with pytest.raises(ds.InputError, match=r"confidence is on a device.*tensor\.cpu\(\)"):
        ds.allocate(OnlyDlpack(np.array(C), device=(2, 0)), PROFILE)


@pytest.mark.parametrize("values", [[], np.empty((0, 2)), np.empty((0, 0))])
def test_no_requests_is_a_normal_answer(values):
    plan = ds.allocate(values, PROFILE)
    assert plan.lengths.tolist() == []
    assert (plan.capacity, plan.throughput) == (0, 0.0)
    assert ds.Status.NO_REQUESTS in plan.status
    assert ds.plan_capacity(values, PROFILE).capacity == 0
    assert ds.allocate(values, PROFILE, capacity=3).surplus == 3


REFUSED = [
    (
        {"confidence": [[0.5, np.nan]]},
        "confidence must lie in [0, 1]; got nan at row 0, position 2",
    ),
    ({"confidence": [[0.5], [1.031]]}, "got 1.031 at row 1, position 1. Pass calibrated"),
    ({"confidence": [0.5, 0.5]}, "must have 2 dimensions [requests, gamma]; got shape (2,)"),
    ({"confidence": np.array(C, dtype=complex)}, "dtype complex128; pass float16, float32"),
    ({"confidence": np.array(C, dtype=bool)}, "confidence has dtype bool"),
    ({"confidence": [["a", "b"]]}, "confidence has dtype <U1"),
    ({"confidence": [[0.5], [0.5, 0.5]]}, "confidence cannot be viewed as a NumPy array"),
    ({"confidence": np.ma.masked_array(C)}, "confidence is a masked array"),
    ({"capacity": -1}, "capacity must be at least 0; got -1"),
    ({"capacity": 1.5}, "capacity must be an integer; got 1.5 (float)"),
    ({"capacity": True}, "capacity must be an integer; got True (bool)"),
    ({"min_lengths": [1, 1], "capacity": 1}, "capacity 1 is below the sum of min_lengths, 2"),
    ({"max_lengths": [3, 1]}, "gamma = 2; got min 0, max 3 at row 0"),
    ({"min_lengths": [0, -1]}, "min_lengths must lie in 0..gamma; got -1 at row 1"),
    ({"min_lengths": [2, 2], "max_lengths": [2, 1]}, "got min 2, max 1 at row 1"),
    (
        {"max_lengths": [1]},
        "max_lengths must have one value per request, shape (2,); got shape (1,)",
    ),
    ({"max_lengths": [1.0, 2.0]}, "max_lengths must be integers (draft counts); got dtype float64"),
    (
        {"max_lengths": np.array([2**40, 1])},
        "max_lengths must lie in 0..gamma; got 1099511627776 at row 0",
    ),
    ({"other_tokens": -1}, "other_tokens must be at least 0; got -1"),
    ({"search": "best"}, "search must be one of 'early-stop', 'global'; got 'best'"),
    ({"invalid": "skip"}, "invalid must be one of 'raise', 'drop'; got 'skip'"),
    ({"out": np.zeros(2)}, "int32 array of shape (2,); got float64 of shape (2,)"),
    ({"out": np.zeros(3, np.int32)}, "int32 array of shape (2,); got int32 of shape (3,)"),
    (
        {"search": "global", "allow_anticipation": True, "capacity": 1},
        "finds the capacity itself; leave capacity= out",
    ),
]


@pytest.mark.parametrize(("arguments", "sentence"), REFUSED, ids=[s[:40] for _, s in REFUSED])
def test_allocate_refuses_with_the_sentence(arguments, sentence):
    arguments = {"confidence": C, **arguments}
    with pytest.raises(ds.InputError, match=re.escape(sentence)):
        ds.allocate(profile=PROFILE, **arguments)


@pytest.mark.parametrize(
    ("ids", "sentence"),
    [
        ([4, 4], "request_ids must be unique; got 4 at rows 0 and 1"),
        ([4.0, 5.0], "request_ids must be integers; got dtype float64"),
        ([4], "one id per request, shape (2,); got shape (1,)"),
        (np.array([1, 2**63], dtype=np.uint64), "must fit into int64"),
    ],
)
def test_the_scheduler_refuses_ids_with_the_sentence(ids, sentence):
    with pytest.raises(ds.InputError, match=re.escape(sentence)):
        ds.DelayedScheduler(PROFILE, gamma=2).step(ids, C)


@pytest.mark.parametrize(
    ("unknown", "sentence"),
    [
        ([0.5, 0.6], "must not rise along positions"),
        ([0.5], "must have shape (2,), one per position; got (1,)"),
        ([1.5, 0.5], "unknown must lie in [0, 1]; got 1.5 at position 1"),
        (["a", "b"], "unknown must be numbers"),
    ],
)
def test_the_scheduler_refuses_a_prior_with_the_sentence(unknown, sentence):
    with pytest.raises(ds.InputError, match=re.escape(sentence)):
        ds.DelayedScheduler(PROFILE, gamma=2, unknown=unknown)


def test_another_gamma_than_the_schedulers_names_both():
    with pytest.raises(
        ds.InputError, match="the confidences have 2 draft positions, the scheduler 3"
    ):
        ds.DelayedScheduler(PROFILE, gamma=3).step([1, 2], C)


def test_a_list_of_narrow_rows_is_a_list():
    assert ds.survival([np.full(2, 0.5, np.float32)]).dtype == np.float64


def test_a_half_precision_array_of_another_library_keeps_its_dtype():
    assert ds.survival(OnlyDlpack(np.full((1, 2), 0.5, np.float16))).dtype == np.float16


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.int16, np.uint32, np.int64, np.uint64])
def test_bounds_of_any_integer_type_are_taken(dtype):
    bounds = np.array([1, 2], dtype)
    assert ds.allocate(C, PROFILE, max_lengths=bounds).lengths.tolist() == [1, 2]


def test_device_arrays_are_refused_wherever_an_array_is_taken():
    on_device = OnlyDlpack(np.array([1.0]), device=(2, 0))
    for call in (
        lambda: ds.SpsProfile([1], step_ms=on_device),
        lambda: ds.SpsProfile(on_device, step_ms=[1.0]),
        lambda: ds.fit_sts([[0.5]], on_device),
        lambda: ds.allocate([[0.5]], PROFILE, max_lengths=on_device),
        lambda: PROFILE.step_seconds(on_device),
    ):
        with pytest.raises(ds.InputError, match="is on a device"):
            call()


def test_a_negative_lag_is_refused_with_its_minimum():
    with pytest.raises(ds.InputError, match="lag must be at least 1; got -1"):
        ds.DelayedScheduler(PROFILE, gamma=2, lag=-1)


class MetaTensor:
    """As torch's meta tensors: a shape, and no device that DLPack has a number for."""

    def __dlpack_device__(self):
        raise ValueError("Unknown device type meta for Dlpack")

    def __dlpack__(self, **_):
        raise ValueError("Unknown device type meta for Dlpack")


def test_an_array_without_numbers_is_refused_with_the_remedy():
    with pytest.raises(ds.InputError) as error:
        ds.survival(MetaTensor())
    assert str(error.value) == (
        "confidence cannot be read (Unknown device type meta for Dlpack); pass an array that holds "
        "its numbers in memory of the CPU"
    )
