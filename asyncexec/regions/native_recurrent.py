"""Native code of recurrent layers: all steps of an LSTM, or of a GRU, for some rows of a batch.

The gates' inputs of all steps, made of the layer's input, come first.  A step adds the product of the state and the
weights to its own, in place, by the code of convolutions: the state is an image of pixels side by side.  Then it goes
over the rows, and writes the new state of each into the result, where the next step reads it.

Gates stand in ONNX's order: i, o, f, c in an LSTM; z, r, h in a GRU.  The tangent is Moshier's (Cephes, ``tanhf``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from asyncexec.regions.native_gates import LARGEST, all_of, exponential
from asyncexec.regions.native_vectors import CONVOLUTION, ITEM, joined, mask_lines, read_arguments

# The first three are the arguments of convolutions: the product of the inputs of all steps, and all products of a step,
# but those of a GRU's candidate in the last one.
RECURRENT: Final = (
    *("inputs_at", "product_at", "candidate_at", "gates_at", "h_at", "c_at", "y_at"),
    *("gates_step", "gates_row", "h_row", "c_row", "y_step", "y_row", "steps", "rows", "count"),
)
_OVERFLOW: Final = 88.72284  # beyond that an exponential is infinite
_MOST: Final = 88.3  # of what ``exponential`` takes
_NEAR_ZERO: Final = 0.625  # up to which the tangent is a polynomial
_TANH: Final = (-5.70498872745e-3, 2.06390887954e-2, -5.37397155531e-2, 1.33314422036e-1, -3.33332819422e-1)
_NO_LIMITS: Final = "float 0xFFF0000000000000, float 0x7FF0000000000000"


def write_recurrent(lanes: int) -> str:
    """The functions ``native_lstm``, ``native_gru`` and ``native_gru_late``, which resets behind the product."""
    kind = f"v{lanes}f32(<{lanes} x float>"
    return "\n".join(
        [
            f"declare <{lanes} x float> @llvm.fabs.{kind})",
            f"declare <{lanes} x float> @llvm.copysign.{kind}, <{lanes} x float>)",
            _steps("lstm", _lstm(lanes)),
            _steps("gru", _gru(lanes)),
            _steps("gru_late", _late_gru(lanes)),
        ]
    )


def _steps(name: str, lines: Sequence[str]) -> str:
    """The function *name*, with *lines* for each step; their last block is ``states_end``."""
    return f"""
define void @native_{name}(ptr %arguments) {{
entry:
 {read_arguments(RECURRENT)}
 %gate0 = add i64 0, 0
 {joined(f"%gate{gate} = mul i64 %count, {gate}" for gate in range(1, 4))}
 call void @native(ptr %inputs_at, {_NO_LIMITS})
 br label %steps_start
steps_start:
 %step = phi i64 [ 0, %entry ], [ %next_step, %states_end ]
 %gates = phi ptr [ %gates_at, %entry ], [ %next_gates, %states_end ]
 %h = phi ptr [ %h_at, %entry ], [ %y, %states_end ]
 %h_distance = phi i64 [ %h_row, %entry ], [ %y_row, %states_end ]
 %y = phi ptr [ %y_at, %entry ], [ %next_y, %states_end ]
 %more_steps = icmp ult i64 %step, %steps
 br i1 %more_steps, label %step_start, label %end
step_start:
 {joined(lines)}
 %next_step = add i64 %step, 1
 %next_gates = getelementptr i8, ptr %gates, i64 %gates_step
 %next_y = getelementptr i8, ptr %y, i64 %y_step
 br label %steps_start
end:
 ret void
}}"""


def _product(table: str, source: str, distance: str, target: str, added: str) -> list[str]:
    """Add the product of what *source* points to, rows at a *distance*, and weights to what *added* points to."""
    lines: list[str] = []
    for name, kind, value in (
        ("x_at", "ptr", source),
        ("pixel", "i64", distance),
        ("out_at", "ptr", target),
        ("added_at", "ptr", added),
    ):
        place = f"%{table}_{name}"
        lines.append(f"{place} = getelementptr i64, ptr %{table}_at, i64 {CONVOLUTION.index(name)}")
        lines.append(f"store {kind} {value}, ptr {place}, align 8")
    return [*lines, f"call void @native(ptr %{table}_at, {_NO_LIMITS})"]


class _Pass:
    """One pass over the rows, by vectors of units; all names have the *name* before theirs.

    Args:
        before: the block in front of it; arrays: what has rows, by name, and how far these are from one another.
    """

    def __init__(self, name: str, lanes: int, before: str, arrays: dict[str, str]) -> None:
        self.end: str = f"{name}_end"
        self._name, self._lanes, self._before, self._arrays = name, lanes, before, arrays
        self._vector, self._mask = f"<{lanes} x float>", f"<{lanes} x i1>"

    def load(self, value: str, array: str, gate: int = 0) -> list[str]:
        """``%value``: numbers of a *gate*, or of a state."""
        place = f"ptr %{value}_at, i32 {ITEM}, {self._mask} %{self._name}_mask, {self._vector} zeroinitializer"
        load = f"%{value} = call {self._vector} @llvm.masked.load.v{self._lanes}f32.p0({place})"
        return [*self._place(value, array, gate), load]

    def store(self, value: str, array: str, gate: int = 0) -> list[str]:
        """Write ``%value`` there."""
        place = f"ptr %{value}_to_at, i32 {ITEM}, {self._mask} %{self._name}_mask"
        return [
            *self._place(f"{value}_to", array, gate),
            f"call void @llvm.masked.store.v{self._lanes}f32.p0({self._vector} %{value}, {place})",
        ]

    def _place(self, value: str, array: str, gate: int) -> list[str]:
        return [
            f"%{value}_number = add i64 %{self._name}_first, %gate{gate}",
            f"%{value}_at = getelementptr float, ptr %{self._name}_{array}, i64 %{value}_number",
        ]

    def text(self, lines: Sequence[str]) -> list[str]:
        """The blocks, with *lines* for each vector; the last of them is still open."""
        name = self._name
        rows: list[str] = []
        for array, distance in self._arrays.items():
            rows.append(f"%{name}_{array}_offset = mul i64 %{name}_row, %{distance}")
            rows.append(f"%{name}_{array} = getelementptr i8, ptr %{array}, i64 %{name}_{array}_offset")
        return [
            f"br label %{name}_rows\n{name}_rows:",
            f"%{name}_row = phi i64 [ 0, %{self._before} ], [ %{name}_next_row, %{name}_row_end ]",
            f"%{name}_more_rows = icmp ult i64 %{name}_row, %rows",
            f"br i1 %{name}_more_rows, label %{name}_row_start, label %{self.end}\n{name}_row_start:",
            *rows,
            f"br label %{name}_vectors\n{name}_vectors:",
            f"%{name}_first = phi i64 [ 0, %{name}_row_start ], [ %{name}_next_first, %{name}_vector ]",
            f"%{name}_more = icmp ult i64 %{name}_first, %count",
            f"br i1 %{name}_more, label %{name}_vector, label %{name}_row_end\n{name}_vector:",
            *mask_lines(f"{name}_", self._lanes),
            *lines,
            f"%{name}_next_first = add i64 %{name}_first, {self._lanes}",
            f"br label %{name}_vectors\n{name}_row_end:",
            f"%{name}_next_row = add i64 %{name}_row, 1",
            f"br label %{name}_rows\n{self.end}:",
        ]


def _lstm(lanes: int) -> list[str]:
    vector = f"<{lanes} x float>"
    states = _Pass("states", lanes, "step_start", {"gates": "gates_row", "c_at": "c_row", "y": "y_row"})
    lines: list[str] = []
    for gate, name in enumerate(("in", "out", "forget")):
        lines += [*states.load(f"{name}_sum", "gates", gate), *_sigmoid(name, f"%{name}_sum", lanes)]
    lines += [
        *states.load("new_sum", "gates", 3),
        *_tanh("new", "%new_sum", lanes),
        *states.load("last_c", "c_at"),
        f"%added = fmul {vector} %in, %new",
        f"%kept = fmul {vector} %forget, %last_c",
        f"%next_c = fadd {vector} %kept, %added",
        *states.store("next_c", "c_at"),
        *_tanh("seen", "%next_c", lanes),
        f"%next_h = fmul {vector} %out, %seen",
        *states.store("next_h", "y"),
    ]
    return [*_product("product", "%h", "%h_distance", "%gates", "%gates"), *states.text(lines)]


def _gru(lanes: int) -> list[str]:
    """The state is reset before the product: it is put where the reset gate was."""
    vector = f"<{lanes} x float>"
    resets = _Pass("resets", lanes, "step_start", {"gates": "gates_row", "h": "h_distance"})
    states = _Pass("states", lanes, resets.end, {"gates": "gates_row", "h": "h_distance", "y": "y_row"})
    return [
        *_product("product", "%h", "%h_distance", "%gates", "%gates"),
        *resets.text(
            [
                *resets.load("reset_sum", "gates", 1),
                *_sigmoid("reset", "%reset_sum", lanes),
                *resets.load("before", "h"),
                f"%left = fmul {vector} %reset, %before",
                *resets.store("left", "gates", 1),
            ]
        ),
        "%left_states = getelementptr float, ptr %gates, i64 %gate1",
        "%candidates = getelementptr float, ptr %gates, i64 %gate2",
        *_product("candidate", "%left_states", "%gates_row", "%candidates", "%candidates"),
        *states.text([*states.load("new_sum", "gates", 2), *_gru_state(states, lanes)]),
    ]


def _late_gru(lanes: int) -> list[str]:
    """The product of the candidate is put into the result first."""
    vector = f"<{lanes} x float>"
    states = _Pass("states", lanes, "step_start", {"gates": "gates_row", "h": "h_distance", "y": "y_row"})
    factors = f"{vector} %reset, {vector} %state_product, {vector} %new_input"
    return [
        *_product("product", "%h", "%h_distance", "%gates", "%gates"),
        *_product("candidate", "%h", "%h_distance", "%y", "null"),
        *states.text(
            [
                *states.load("reset_sum", "gates", 1),
                *_sigmoid("reset", "%reset_sum", lanes),
                *states.load("state_product", "y"),
                *states.load("new_input", "gates", 2),
                f"%new_sum = call {vector} @llvm.fma.v{lanes}f32({factors})",
                *_gru_state(states, lanes),
            ]
        ),
    ]


def _gru_state(states: _Pass, lanes: int) -> list[str]:
    """Write the state that ``%new_sum`` gives, a part of which the gate z holds back."""
    vector = f"<{lanes} x float>"
    factors = f"{vector} %hold, {vector} %apart, {vector} %new"
    return [
        *states.load("hold_sum", "gates", 0),
        *_sigmoid("hold", "%hold_sum", lanes),
        *_tanh("new", "%new_sum", lanes),
        *states.load("last", "h"),
        f"%apart = fsub {vector} %last, %new",
        f"%next_h = call {vector} @llvm.fma.v{lanes}f32({factors})",
        *states.store("next_h", "y"),
    ]


def _bounded(name: str, value: str, low: float, high: float, lanes: int) -> list[str]:
    """``%name``: *value*, *low* at least and *high* at most."""
    vector, truth = f"<{lanes} x float>", f"<{lanes} x i1>"
    return [
        f"%{name}_low = fcmp olt {vector} {value}, {all_of(low, lanes)}",
        f"%{name}_raised = select {truth} %{name}_low, {vector} {all_of(low, lanes)}, {vector} {value}",
        f"%{name}_high = fcmp ogt {vector} %{name}_raised, {all_of(high, lanes)}",
        f"%{name} = select {truth} %{name}_high, {vector} {all_of(high, lanes)}, {vector} %{name}_raised",
    ]


def _sigmoid(name: str, x: str, lanes: int) -> list[str]:
    """``%name``: ``1 / (1 + exp(-x))``, which is 0 where the exponential is infinite."""
    vector, truth = f"<{lanes} x float>", f"<{lanes} x i1>"
    return [
        f"%{name}_minus = fneg {vector} {x}",
        *_bounded(f"{name}_exponent", f"%{name}_minus", -LARGEST, _MOST, lanes),
        *exponential(lanes, f"{name}_"),
        f"%{name}_below = fadd {vector} %{name}_scaled, {all_of(1.0, lanes)}",
        f"%{name}_quotient = fdiv {vector} {all_of(1.0, lanes)}, %{name}_below",
        f"%{name}_is_far = fcmp ogt {vector} %{name}_minus, {all_of(_OVERFLOW, lanes)}",
        f"%{name}_far = select {truth} %{name}_is_far, {vector} zeroinitializer, {vector} %{name}_quotient",
        f"%{name}_is_known = fcmp ord {vector} {x}, {x}",
        f"%{name} = select {truth} %{name}_is_known, {vector} %{name}_far, {vector} {x}",
    ]


def _tanh(name: str, x: str, lanes: int) -> list[str]:
    """``%name``: the hyperbolic tangent, ``1 - 2 / (1 + exp(2 |x|))`` with the sign of *x*, or a polynomial near 0."""
    vector, truth, one = f"<{lanes} x float>", f"<{lanes} x i1>", all_of(1.0, lanes)
    powers = [f"%{name}_z = fmul {vector} {x}, {x}"]
    last = all_of(_TANH[0], lanes)
    for number, coefficient in enumerate(_TANH[1:]):
        factors = f"{vector} {last}, {vector} %{name}_z, {vector} {all_of(coefficient, lanes)}"
        powers.append(f"%{name}_factor{number} = call {vector} @llvm.fma.v{lanes}f32({factors})")
        last = f"%{name}_factor{number}"
    return [
        *powers,
        f"%{name}_cube = fmul {vector} %{name}_z, {x}",
        f"%{name}_small = call {vector} @llvm.fma.v{lanes}f32({vector} {last}, {vector} %{name}_cube, {vector} {x})",
        f"%{name}_size = call {vector} @llvm.fabs.v{lanes}f32({vector} {x})",
        f"%{name}_twice = fadd {vector} %{name}_size, %{name}_size",
        *_bounded(f"{name}_exponent", f"%{name}_twice", 0.0, LARGEST, lanes),
        *exponential(lanes, f"{name}_"),
        f"%{name}_below = fadd {vector} %{name}_scaled, {one}",
        f"%{name}_quotient = fdiv {vector} {all_of(-2.0, lanes)}, %{name}_below",
        f"%{name}_tangent = fadd {vector} %{name}_quotient, {one}",
        f"%{name}_far = call {vector} @llvm.copysign.v{lanes}f32({vector} %{name}_tangent, {vector} {x})",
        f"%{name}_is_far = fcmp ogt {vector} %{name}_size, {all_of(_NEAR_ZERO, lanes)}",
        f"%{name} = select {truth} %{name}_is_far, {vector} %{name}_far, {vector} %{name}_small",
    ]
