"""Text of the functions that native code of arrays calls, beside numpy's own loops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from asyncexec.regions.native_emitter import B1, BITS, FLOATS, LLVM_NAMES, NotNativeError, ScalarType, in_memory
from asyncexec.regions.native_vectors import joined

MEMCPY: Final = "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)\n"

# Calls a loop of numpy's some times, and moves its arrays on after each: the loop may write to what it is given.
REPEATED: Final = """
define internal void @repeated(ptr %loop, ptr %data, ptr %arrays, ptr %moves, ptr %sizes, ptr %steps, i64 %num,
  i64 %times) noinline {
entry:
 %here = alloca [16 x ptr]
 %given = alloca [16 x ptr]
 br label %fill
fill:
 %array = phi i64 [ 0, %entry ], [ %next_array, %fill ]
 %from = getelementptr ptr, ptr %arrays, i64 %array
 %to = getelementptr ptr, ptr %here, i64 %array
 %start = load ptr, ptr %from
 store ptr %start, ptr %to
 %next_array = add i64 %array, 1
 %more_arrays = icmp ult i64 %next_array, %num
 br i1 %more_arrays, label %fill, label %row
row:
 %time = phi i64 [ 0, %fill ], [ %next_time, %call ]
 br label %move
move:
 %moved = phi i64 [ 0, %row ], [ %next_moved, %move ]
 %here_at = getelementptr ptr, ptr %here, i64 %moved
 %given_at = getelementptr ptr, ptr %given, i64 %moved
 %move_at = getelementptr i64, ptr %moves, i64 %moved
 %now = load ptr, ptr %here_at
 store ptr %now, ptr %given_at
 %by = load i64, ptr %move_at
 %next = getelementptr i8, ptr %now, i64 %by
 store ptr %next, ptr %here_at
 %next_moved = add i64 %moved, 1
 %more_moves = icmp ult i64 %next_moved, %num
 br i1 %more_moves, label %move, label %call
call:
 call void %loop(ptr %given, ptr %sizes, ptr %steps, ptr %data)
 %next_time = add i64 %time, 1
 %again = icmp ult i64 %next_time, %times
 br i1 %again, label %row, label %end
end:
 ret void
}
"""
_LANES: Final = 16


def memcpy(target: str, source: str, num_bytes: int) -> str:
    """The line that copies *num_bytes*."""
    return f" call void @llvm.memcpy.p0.p0.i64(ptr {target}, ptr {source}, i64 {num_bytes}, i1 false)"


def take(index: ScalarType) -> tuple[str, str]:
    """A function that copies the rows at some indices; it gives whether one is out of range."""
    llvm = LLVM_NAMES[index]
    wide = "%index" if llvm == "i64" else "%wide"
    extended = "" if llvm == "i64" else f"\n %wide = sext {llvm} %index to i64"
    name = f"take_{llvm}"
    return (
        name,
        f"""
define internal i1 @{name}(ptr %rows, ptr %indices, ptr %out, i64 %row, i64 %limit, i64 %count) {{
entry:
 br label %start
start:
 %place = phi i64 [ 0, %entry ], [ %next, %copy ]
 %is_more = icmp ult i64 %place, %count
 br i1 %is_more, label %look, label %end
look:
 %index_at = getelementptr {llvm}, ptr %indices, i64 %place
 %index = load {llvm}, ptr %index_at{extended}
 %is_good = icmp ult i64 {wide}, %limit
 br i1 %is_good, label %copy, label %end
copy:
 %offset = mul i64 {wide}, %row
 %from = getelementptr i8, ptr %rows, i64 %offset
 %out_offset = mul i64 %place, %row
 %to = getelementptr i8, ptr %out, i64 %out_offset
 call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %from, i64 %row, i1 false)
 %next = add i64 %place, 1
 br label %start
end:
 %is_bad = phi i1 [ false, %start ], [ true, %look ]
 ret i1 %is_bad
}}
""",
    )


def conversion(source: ScalarType, target: ScalarType) -> tuple[str, str]:
    """A loop like those of numpy that converts numbers where there is one way to do so; else NotNativeError."""
    one, other = in_memory(source), in_memory(target)
    if target is B1 or (source in FLOATS and target not in FLOATS):
        raise NotNativeError
    if source in FLOATS:
        word = "fptrunc" if BITS[source] > BITS[target] else "fpext"
    elif source is B1:
        word = "uitofp" if target in FLOATS else "zext"
    elif target in FLOATS:
        word = "sitofp"
    else:
        word = "trunc" if BITS[source] > BITS[target] else "sext"
    name = f"convert_{one}_{other}"
    return name, _loop(name, [one, other], [f"%result = {word} {one} %x0 to {other}"])


def choice(kind: ScalarType) -> tuple[str, str]:
    """A loop like those of numpy that takes the second number where the first is true, and else the third."""
    llvm = in_memory(kind)
    name = f"choose_{llvm}"
    lines = ["%is_one = icmp ne i8 %x0, 0", f"%result = select i1 %is_one, {llvm} %x1, {llvm} %x2"]
    return name, _loop(name, ["i8", llvm, llvm, llvm], lines)


def _loop(name: str, types: Sequence[str], lines: Sequence[str]) -> str:
    """A function with the arguments that numpy's loops have; *lines* make ``%result`` of ``%x0`` and so on."""
    numbers = range(len(types))
    last = len(types) - 1
    begin = [
        line
        for number in numbers
        for line in (
            f"%array_place{number} = getelementptr ptr, ptr %arrays, i64 {number}",
            f"%array{number} = load ptr, ptr %array_place{number}",
            f"%step_place{number} = getelementptr i64, ptr %steps, i64 {number}",
            f"%step{number} = load i64, ptr %step_place{number}",
        )
    ]
    here = [f"%at{number} = phi ptr [ %array{number}, %entry ], [ %next_at{number}, %do ]" for number in numbers]
    reads = [f"%x{number} = load {types[number]}, ptr %at{number}" for number in numbers[:-1]]
    moves = [f"%next_at{number} = getelementptr i8, ptr %at{number}, i64 %step{number}" for number in numbers]
    body = [*reads, *lines, f"store {types[last]} %result, ptr %at{last}", *moves]
    return f"""
define internal void @{name}(ptr %arrays, ptr %sizes, ptr %steps, ptr %data) {{
entry:
 %count = load i64, ptr %sizes
 {joined(begin)}
 br label %start
start:
 %place = phi i64 [ 0, %entry ], [ %next, %do ]
 {joined(here)}
 %is_more = icmp ult i64 %place, %count
 br i1 %is_more, label %do, label %end
do:
 {joined(body)}
 %next = add i64 %place, 1
 br label %start
end:
 ret void
}}
"""


class _Words(NamedTuple):
    """What stands in the text of a search for numbers of one type."""

    name: str
    llvm: str
    vector: str
    truth: str
    item: int  # bytes
    better: str
    equal: str
    nan: str
    reduce: str


def search(kind: ScalarType, which: str) -> tuple[str, list[str]]:
    """A function that finds the first of the largest, or smallest, numbers of rows; it gives whether one is a NaN.

    It comes with the lines that declare what it calls.  Vectors of numbers are compared first, then what is left of the
    row, and then the number that was found is looked for.
    """
    words = _words(kind, which)
    declared = [
        f"declare {words.llvm} {words.reduce}({words.vector})\n",
        f"declare i1 @llvm.vector.reduce.or.v{_LANES}i1({words.truth})\n",
    ]
    text = f"""
define internal i1 @{words.name}(ptr %numbers, ptr %out, i64 %rows, i64 %count) {{
entry:
 %vectors = and i64 %count, -{_LANES}
 br label %row
row:
 %number = phi i64 [ 0, %entry ], [ %next_row, %found ]
 %is_row = icmp ult i64 %number, %rows
 br i1 %is_row, label %begin, label %good
begin:
 %start = mul i64 %number, %count
 %here = getelementptr {words.llvm}, ptr %numbers, i64 %start
 %first = load {words.llvm}, ptr %here
 %first_one = insertelement {words.vector} poison, {words.llvm} %first, i32 0
 %first_all = shufflevector {words.vector} %first_one, {words.vector} poison, <{_LANES} x i32> zeroinitializer
 br label %vector
{_best_of_vectors(words)}
{_best_of_rest(words)}
check:
 br i1 %rest_odd, label %bad, label %look
look:
 %look_at = phi i64 [ 0, %check ], [ %next_look, %look ]
 %look_place = getelementptr {words.llvm}, ptr %here, i64 %look_at
 %z = load {words.llvm}, ptr %look_place
 %is_it = {words.equal} {words.llvm} %z, %rest_best
 %next_look = add i64 %look_at, 1
 %is_end = icmp uge i64 %next_look, %count
 %stops = or i1 %is_it, %is_end
 br i1 %stops, label %found, label %look
found:
 %out_at = getelementptr i64, ptr %out, i64 %number
 store i64 %look_at, ptr %out_at
 %next_row = add i64 %number, 1
 br label %row
good:
 ret i1 false
bad:
 ret i1 true
}}
"""
    return words.name, [*declared, text]


def _words(kind: ScalarType, which: str) -> _Words:
    if kind is B1:
        raise NotNativeError
    llvm, is_max = LLVM_NAMES[kind], which == "argmax"
    best = "max" if is_max else "min"
    if kind in FLOATS:
        comparisons = f"fcmp {'ogt' if is_max else 'olt'}", "fcmp oeq", "fcmp uno"
        reduce = f"@llvm.vector.reduce.f{best}.v{_LANES}f{BITS[kind]}"
    else:
        comparisons = f"icmp {'sgt' if is_max else 'slt'}", "icmp eq", "icmp ne"
        reduce = f"@llvm.vector.reduce.s{best}.v{_LANES}i{BITS[kind]}"
    vector, truth = f"<{_LANES} x {llvm}>", f"<{_LANES} x i1>"
    return _Words(f"{which}_{llvm}", llvm, vector, truth, BITS[kind] // 8, *comparisons, reduce)


def _best_of_vectors(words: _Words) -> str:
    """The blocks that give ``%best_one`` of the whole vectors of a row, and whether a number is none."""
    return f"""\
vector:
 %at = phi i64 [ 0, %begin ], [ %next_at, %some ]
 %best = phi {words.vector} [ %first_all, %begin ], [ %next_best, %some ]
 %odd = phi {words.truth} [ zeroinitializer, %begin ], [ %next_odd, %some ]
 %is_vector = icmp ult i64 %at, %vectors
 br i1 %is_vector, label %some, label %reduce
some:
 %some_at = getelementptr {words.llvm}, ptr %here, i64 %at
 %x = load {words.vector}, ptr %some_at, align {words.item}
 %is_better = {words.better} {words.vector} %x, %best
 %next_best = select {words.truth} %is_better, {words.vector} %x, {words.vector} %best
 %is_odd = {words.nan} {words.vector} %x, %x
 %next_odd = or {words.truth} %odd, %is_odd
 %next_at = add i64 %at, {_LANES}
 br label %vector
reduce:
 %best_one = call {words.llvm} {words.reduce}({words.vector} %best)
 %first_is_odd = {words.nan} {words.llvm} %first, %first
 %some_odd = call i1 @llvm.vector.reduce.or.v{_LANES}i1({words.truth} %odd)
 %any_odd = or i1 %some_odd, %first_is_odd
 br label %rest"""


def _best_of_rest(words: _Words) -> str:
    """The blocks that give ``%rest_best`` and ``%rest_odd`` of the row."""
    return f"""\
rest:
 %rest_at = phi i64 [ %vectors, %reduce ], [ %next_rest, %single ]
 %rest_best = phi {words.llvm} [ %best_one, %reduce ], [ %single_best, %single ]
 %rest_odd = phi i1 [ %any_odd, %reduce ], [ %single_odd, %single ]
 %is_rest = icmp ult i64 %rest_at, %count
 br i1 %is_rest, label %single, label %check
single:
 %single_at = getelementptr {words.llvm}, ptr %here, i64 %rest_at
 %y = load {words.llvm}, ptr %single_at
 %y_better = {words.better} {words.llvm} %y, %rest_best
 %single_best = select i1 %y_better, {words.llvm} %y, {words.llvm} %rest_best
 %y_odd = {words.nan} {words.llvm} %y, %y
 %single_odd = or i1 %rest_odd, %y_odd
 %next_rest = add i64 %rest_at, 1
 br label %rest"""
