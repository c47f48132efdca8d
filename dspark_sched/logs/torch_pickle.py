"""The part of the pickle language in which torch.save describes tensors, and nothing else.

``pickletools`` takes the stream apart without running it. What is built here are plain values and
descriptions of tensors: no name is looked up, nothing is called, so a hostile pickle has nothing
to hold on to. Python's own unpickler is never involved.
"""

import io
import pickletools
from typing import NamedTuple

from ..checks import shown

__all__ = ["Refused", "StorageRef", "TensorRef", "read_description"]

#: A dict of two tensors takes about 300 bytes; the rest is room for metadata.
MAX_BYTES = 1 << 20
_STORAGES = {
    f"torch {name}Storage": dtype
    for name, dtype in {
        "Float": "f4",
        "Double": "f8",
        "Half": "f2",
        "BFloat16": "bfloat16",
        "Long": "i8",
        "Int": "i4",
        "Short": "i2",
        "Char": "i1",
        "Byte": "u1",
        "Bool": "?",
    }.items()
}
_REBUILD = "torch._utils _rebuild_tensor_v2"
_ORDERED_DICT = "collections OrderedDict"


class Refused(Exception):
    """The pickle holds something else than plain values and tensors; says what."""


class StorageRef(NamedTuple):
    """Numbers of one type in one member of the archive."""

    dtype: str
    key: str
    num_elements: int


class TensorRef(NamedTuple):
    """A view of a storage; offset and strides count elements."""

    storage: StorageRef
    offset: int
    shape: tuple
    stride: tuple


class _Name(NamedTuple):
    """A global that was mentioned: only ever compared, never looked up."""

    dotted: str


def read_description(data):
    """Read what a ``data.pkl`` of torch.save describes.

    Parameters
    ----------
    data : bytes

    Returns
    -------
    object
        Plain values; `TensorRef` where a tensor was.

    Raises
    ------
    Refused
        Any other content; the message names it.
    """
    if len(data) > MAX_BYTES:
        raise Refused(f"its description takes {len(data)} bytes, more than {MAX_BYTES}")
    machine = _Machine()
    try:
        for opcode, argument, _ in pickletools.genops(io.BytesIO(data)):
            step = _STEPS.get(opcode.name)
            if step is None:
                raise Refused(f"it uses the pickle operation {opcode.name}")
            step(machine, argument)
    except (ValueError, IndexError, KeyError, TypeError, OverflowError):
        raise Refused("its pickle is damaged") from None
    if len(machine.stack) != 1:
        raise Refused("its pickle is damaged")
    return machine.stack[0]


class _Machine:
    """Stack, marks and memo of the pickle language."""

    def __init__(self):
        self.stack = []
        self.marks = []
        self.memo = {}

    def push(self, value):
        self.stack.append(value)

    def pop_to_mark(self):
        start = self.marks.pop()
        values = self.stack[start:]
        del self.stack[start:]
        return values

    def remember(self, index):
        self.memo[len(self.memo) if index is None else index] = self.stack[-1]

    def set_items(self, values):
        target = self.stack[-1]
        if type(target) is not dict or len(values) % 2:
            raise Refused("its pickle is damaged")
        for key, value in zip(values[::2], values[1::2], strict=True):
            if type(key) not in (str, int):  # the hash of a nested tuple may take for ever
                raise Refused("a dict key is neither a string nor an integer")
            target[key] = value

    def append_items(self, values):
        if type(self.stack[-1]) is not list:
            raise Refused("its pickle is damaged")
        self.stack[-1].extend(values)

    def name(self, dotted):
        if dotted not in _STORAGES and dotted not in (_REBUILD, _ORDERED_DICT):
            raise Refused(f"it names {shown(dotted.replace(' ', '.'))}")
        self.push(_Name(dotted))

    def call(self):
        arguments, function = self.stack.pop(), self.stack.pop()
        if function == _Name(_ORDERED_DICT) and arguments == ():
            self.push({})
        elif function == _Name(_REBUILD) and type(arguments) is tuple:
            storage, offset, shape, stride = arguments[:4]
            self.push(_tensor(storage, offset, shape, stride))
        else:
            raise Refused("it calls something else than the rebuilding of a tensor")

    def storage(self):
        kind, name, key, _device, num_elements = self.stack.pop()
        if kind != "storage" or type(name) is not _Name or type(key) is not str:
            raise Refused("its pickle is damaged")
        self.push(StorageRef(_STORAGES[name.dotted], key, _count(num_elements)))


def _tensor(storage, offset, shape, stride):
    if type(storage) is not StorageRef or type(shape) is not tuple or type(stride) is not tuple:
        raise Refused("its pickle is damaged")
    if len(shape) != len(stride):
        raise Refused("its pickle is damaged")
    return TensorRef(storage, _count(offset), tuple(map(_count, shape)), tuple(map(_count, stride)))


def _count(value):
    if type(value) is not int or not 0 <= value < 2**62:
        raise Refused("a size in it is not a count")
    return value


def _stack_global(machine, _):
    name, module = machine.stack.pop(), machine.stack.pop()
    if type(name) is not str or type(module) is not str:
        raise Refused("its pickle is damaged")
    machine.name(f"{module} {name}")


def _tuple_of(length):
    def step(machine, _):
        if len(machine.stack) < length:
            raise Refused("its pickle is damaged")
        start = len(machine.stack) - length
        machine.stack[start:] = [tuple(machine.stack[start:])]

    return step


def _pushes(make):
    return lambda machine, argument: machine.push(make(argument))


def _nothing(machine, argument):
    """Framing and versions: no value."""


_STEPS = {
    "PROTO": _nothing,
    "FRAME": _nothing,
    "STOP": _nothing,
    "MARK": lambda machine, _: machine.marks.append(len(machine.stack)),
    "NONE": _pushes(lambda _: None),
    "NEWTRUE": _pushes(lambda _: True),
    "NEWFALSE": _pushes(lambda _: False),
    "EMPTY_DICT": _pushes(lambda _: {}),
    "EMPTY_LIST": _pushes(lambda _: []),
    "EMPTY_TUPLE": _pushes(lambda _: ()),
    "TUPLE": lambda machine, _: machine.push(tuple(machine.pop_to_mark())),
    "TUPLE1": _tuple_of(1),
    "TUPLE2": _tuple_of(2),
    "TUPLE3": _tuple_of(3),
    "SETITEM": lambda machine, _: machine.set_items([machine.stack.pop(-2), machine.stack.pop()]),
    "SETITEMS": lambda machine, _: machine.set_items(machine.pop_to_mark()),
    "APPEND": lambda machine, _: machine.append_items([machine.stack.pop()]),
    "APPENDS": lambda machine, _: machine.append_items(machine.pop_to_mark()),
    "BINGET": lambda machine, index: machine.push(machine.memo[index]),
    "LONG_BINGET": lambda machine, index: machine.push(machine.memo[index]),
    "BINPUT": lambda machine, index: machine.remember(index),
    "LONG_BINPUT": lambda machine, index: machine.remember(index),
    "MEMOIZE": lambda machine, _: machine.remember(None),
    "GLOBAL": lambda machine, dotted: machine.name(dotted),
    "STACK_GLOBAL": _stack_global,
    "REDUCE": lambda machine, _: machine.call(),
    "BINPERSID": lambda machine, _: machine.storage(),
}
_STEPS |= dict.fromkeys(
    "BININT BININT1 BININT2 LONG1 BINFLOAT BINUNICODE BINUNICODE8 SHORT_BINUNICODE".split(),
    _pushes(lambda value: value),
)
