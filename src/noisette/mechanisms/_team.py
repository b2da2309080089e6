"""Loops of machine code in parts, by the threads that torch has awake.

Between two of its own loops torch lets its threads wait awake for a moment. A thread of another pool has to take a core
away from them, and Python hands its lock from thread to thread; both take longer than a short loop. So a part here is
called by torch's own threads, through the OpenMP library that torch was linked to, and no part needs Python's lock.
Where that library is not found, and in a child of a fork, whose threads stayed with its parent, threads of Python do
the work.

A loop is a function whose last arguments are the first and the last place of a part. Parts begin at multiples of a
number that the caller gives, so that an entry is computed in the same way whoever computes it: a loop whose entries
follow from their own part alone, cut there, has the same bits with any number of threads.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from noisette.mechanisms.geometric.spherical import share

_PARTS = 4  # for each thread, so that one which is interrupted leaves the rest to the others
_tools: Any = cgutils
_state = {"used": False, "lost": False}  # whether torch's threads had work from here, and stayed with a parent


def _in_parts(typing: Any, loop: Any, given: Any, team: Any) -> Any:
    """Call ``loop(*given, low, high)`` for all parts; ``team`` is (library, threads, places, places in a part).

    Return 0, or another number where a part ended early.
    """
    whole = types.intp
    own = typing.resolve_function_type(loop, (*given.types, whole, whole), {})

    def written(context: Any, builder: Any, _: Any, values: Any) -> Any:
        _, packed, settings = values
        library, threads, places, some = _tools.unpack_tuple(builder, settings, 4)
        word, small, byte = ir.IntType(64), ir.IntType(32), ir.IntType(8)
        address = byte.as_pointer()
        fields = [packed.type, word, word, word, word]  # arguments, places, some, the next part, what went wrong
        kept = _tools.alloca_once(builder, ir.LiteralStructType(fields))
        zero = ir.Constant(word, 0)
        for place, value in enumerate((packed, places, some, zero, zero)):
            builder.store(value, _tools.gep_inbounds(builder, kept, 0, place))

        kind = ir.FunctionType(ir.VoidType(), [address])
        part = ir.Function(builder.module, kind, builder.module.get_unique_name(f"{builder.function.name}.part"))
        part.linkage = "internal"
        inner = ir.IRBuilder(part.append_basic_block("entry"))
        held = inner.bitcast(part.args[0], kept.type)
        args, last, length, following, wrong = (_tools.gep_inbounds(inner, held, 0, place) for place in range(5))
        last, length = inner.load(last), inner.load(length)
        arguments = _tools.unpack_tuple(inner, inner.load(args), len(given.types))
        again, body, end = (part.append_basic_block(name) for name in ("again", "body", "end"))
        inner.branch(again)
        inner.position_at_end(again)
        low = inner.mul(inner.atomic_rmw("add", following, ir.Constant(word, 1), "monotonic"), length)
        inner.cbranch(inner.icmp_signed("<", low, last), body, end)
        inner.position_at_end(body)
        high = inner.add(low, length)
        high = inner.select(inner.icmp_signed("<", high, last), high, last)
        compiled_loop = loop.dispatcher.get_compile_result(own)
        context.active_code_library.add_linking_library(compiled_loop.library)
        function = context.declare_function(inner.module, compiled_loop.fndesc)
        status, _ = context.call_conv.call_function(
            inner, function, compiled_loop.fndesc.restype, compiled_loop.fndesc.argtypes, [*arguments, low, high]
        )
        with _tools.if_unlikely(inner, status.is_error):
            inner.store(ir.Constant(word, 1), wrong)
        inner.branch(again)
        inner.position_at_end(end)
        inner.ret_void()

        start = ir.FunctionType(ir.VoidType(), [kind.as_pointer(), address, small, small])
        begin = builder.inttoptr(library, start.as_pointer())
        count = builder.trunc(threads, small)
        builder.call(begin, [part, builder.bitcast(kept, address), count, ir.Constant(small, 0)])
        return builder.load(_tools.gep_inbounds(builder, kept, 0, 4))

    return types.intp(loop, given, team), written


in_parts: Any = intrinsic(_in_parts)  # which gives the first argument itself


@dataclass(frozen=True)
class Loop:
    """A loop as machine code, alone and for several threads; ``together`` is ``in_parts`` of ``alone``, compiled."""

    alone: Callable[..., None]
    together: Callable[..., int]

    def __call__(self, *given: Any, places: int, threads: int = 1, least: int = 1) -> None:
        """Do the work of all places, by several threads in parts that begin at multiples of ``least``."""
        some = max(-(-places // (_PARTS * threads * least)), 1) * least
        if threads < 2 or some >= places:
            self.alone(*given, 0, places)
        elif library := find_library():
            _state["used"] = True
            if self.together(given, (library, threads, places, some)):
                raise RuntimeError("A part of a loop ended early.")
        else:
            self._by_python(given, places, some)

    def _by_python(self, given: Sequence[Any], places: int, some: int) -> None:
        """Do as `__call__`, by threads of Python."""
        share(
            lambda part: self.alone(*given, part * some, min((part + 1) * some, places)),
            -(-places // some),
            sys.maxsize,
        )


def find_library() -> int:
    """Return the address of the function that runs torch's threads, 0 where there is none to be used."""
    return 0 if _state["lost"] or "torch" not in sys.modules else _found()


@cache
def _found() -> int:
    """Return the address of ``GOMP_parallel`` in the library that torch is linked to, 0 where there is none.

    It is part of the binary interface of the compilers of GNU and LLVM, which torch is built with.
    """
    import torch

    if not sys.platform.startswith("linux"):
        return 0
    try:
        loaded = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"), mode=os.RTLD_NOLOAD)
        return ctypes.cast(loaded.GOMP_parallel, ctypes.c_void_p).value or 0
    except (OSError, AttributeError):
        return 0


def _lose() -> None:
    """Note in the child of a fork that threads which worked stayed with the parent: to wait for them has no end."""
    _state["lost"] = _state["used"] or _state["lost"]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_lose)
