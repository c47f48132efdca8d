"""What foreign files may hold: keys that are there twice, values too long to repeat."""

import pytest

import dspark_sched as ds
from dspark_sched import checks


class Key(str):
    """Counts how often it is compared or hashed."""

    work = 0

    def __eq__(self, other):
        Key.work += 1
        return str.__eq__(self, other)

    def __hash__(self):
        Key.work += 1
        return str.__hash__(self)


@pytest.mark.parametrize("repeated", [False, True])
def test_looking_for_a_key_that_is_there_twice_is_linear_work(repeated):
    def work(count):
        Key.work = 0
        pairs = [(Key(i), i) for i in range(count)]
        if repeated:
            pairs.append((Key(count - 1), 0))
            with pytest.raises(ds.InputError, match=f"file: key '{count - 1}' is there twice"):
                checks.unique_keys("file")(pairs)
        else:
            assert checks.unique_keys("file")(pairs) == dict(pairs)
        return Key.work

    assert work(4000) <= 2.2 * work(2000)
    assert work(4000) <= 8 * 4000


def test_a_value_in_a_message_is_cut_and_its_length_said():
    assert checks.shown("short") == "'short'"
    assert checks.shown(12) == "12"
    assert checks.shown("x" * 300_000) == f"'{'x' * 80}'... (300000 characters)"
    assert checks.shown([0] * 100) == "[" + "0, " * 26 + "0... (300 characters)"
