"""The device of a node that is free to choose: priorities, partial names, the two heuristics, soft placement."""

from __future__ import annotations

import pytest

from tests.placement.fake_devices import PREFIX, fake_device, fake_devices, lines, placed

CASES: dict[str, tuple[str, str]] = {
    "the type of highest priority that has a kernel": (
        """
        in: FakeInput
        n1: FakeRelu(in)
        n2: FakeRelu(in:1)
        """,
        """
        in @ FakeCPU:0
        n1 @ FakeGPU:0
        n2 @ FakeGPU:0
        """,
    ),
    "kernels may have priorities of their own": (
        """
        in: FakeInput
        n1: FakeDatasetOp(in)
        n2: FakeDatasetOp(in:1)
        """,
        """
        in @ FakeCPU:0
        n1 @ FakeCPU:0
        n2 @ FakeCPU:0
        """,
    ),
    "which hold against the device of the input": (
        """
        in: FakeGPUOutput
        n1: FakeDatasetOp(in)
        """,
        """
        in @ FakeGPU:0
        n1 @ FakeCPU:0
        """,
    ),
    "but not against a group that can't": (
        """
        in: FakeGPUOutput
        n1: FakeDatasetOp[_class=["loc:@in"]](in)
        n2: FakeDatasetOp(in)
        """,
        """
        in @ FakeGPU:0
        n1 @ FakeGPU:0
        n2 @ FakeCPU:0
        """,
    ),
    "ops with one kernel, and what they are bound to": (
        """
        in: FakeInput
        var_cpu: VariableCPU
        assign_cpu: AssignCPU(var_cpu, in)
        var_gpu: VariableGPU
        assign_gpu: AssignGPU(var_gpu, in)
        """,
        """
        in @ FakeCPU:0
        var_cpu @ FakeCPU:0
        assign_cpu @ FakeCPU:0
        var_gpu @ FakeGPU:0
        assign_gpu @ FakeGPU:0
        """,
    ),
    "a part of a name leaves the rest open": (
        """
        in: FakeInput @ /job:a
        var: FakeVariable @ /job:a
        relu: FakeRelu(in) @ /device:FakeCPU:*
        """,
        """
        in @ FakeCPU:0
        var @ FakeGPU:0
        relu @ FakeCPU:0
        """,
    ),
    "what looks at shapes goes with its input": (
        """
        var_cpu: VariableCPU
        other: FakeVariable @ /device:FakeCPU:4
        shape_op: Shape(var_cpu)
        size_op: Size(other)
        pinned: Rank(var_cpu) @ /device:FakeGPU:1
        """,
        """
        var_cpu @ FakeCPU:0
        other @ FakeCPU:4
        shape_op @ FakeCPU:0
        size_op @ FakeCPU:4
        pinned @ FakeGPU:1
        """,
    ),
    "a generator goes with its consumer": (
        """
        var_cpu: VariableCPU
        in: FakeCPUGPUOutput
        assign: FakeAssign(var_cpu, in)
        """,
        """
        var_cpu @ FakeCPU:0
        in @ FakeCPU:0
        assign @ FakeCPU:0
        """,
    ),
    "and with several on one device": (
        """
        var1: VariableCPU
        var2: VariableCPU
        in: FakeCPUGPUOutput
        assign1: FakeAssign(var1, in)
        assign2: FakeAssign(var2, in)
        """,
        """
        var1 @ FakeCPU:0
        var2 @ FakeCPU:0
        in @ FakeCPU:0
        assign1 @ FakeCPU:0
        assign2 @ FakeCPU:0
        """,
    ),
    "unless it has no kernel there": (
        """
        var_cpu: VariableCPU
        in: FakeGPUOutput
        assign: FakeAssign(var_cpu, in)
        """,
        """
        var_cpu @ FakeCPU:0
        in @ FakeGPU:0
        assign @ FakeCPU:0
        """,
    ),
    "or asks for another": (
        """
        var_cpu: VariableCPU
        in: FakeCPUGPUOutput @ /device:FakeCPU:1
        assign: FakeAssign(var_cpu, in)
        """,
        """
        var_cpu @ FakeCPU:0
        in @ FakeCPU:1
        assign @ FakeCPU:0
        """,
    ),
    "what only waits for it counts as a consumer": (
        """
        in: FakeCPUGPUOutput
        c: ReluCPU(in)
        g: ReluGPU(c, ^in)
        next: FakeCPUGPUOutput(^alone)
        alone: FakeCPUGPUOutput
        """,
        """
        in @ FakeGPU:0
        c @ FakeCPU:0
        g @ FakeGPU:0
        next @ FakeGPU:0
        alone @ FakeGPU:0
        """,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_free_choices(case: str) -> None:
    text, expected = CASES[case]
    assert by_name(placed(text)) == by_name(lines(expected))


def by_name(text: str) -> set[str]:
    """The lines of *text*: the importer orders nodes by their inputs."""
    return set(text.splitlines())


def test_a_generator_does_not_follow_consumers_on_several_devices() -> None:
    text = """
        var1: VariableCPU
        var2: VariableCPU
        in: FakeCPUGPUOutput
        assign1: FakeAssign(var1, in)
        assign2: FakeAssign(var2, in)
    """
    assigned = {"var1": f"{PREFIX}/device:FakeCPU:1", "var2": f"{PREFIX}/device:FakeCPU:2"}
    assert placed(text, assigned=assigned) == lines("""
        var1 @ FakeCPU:1
        var2 @ FakeCPU:2
        in @ FakeGPU:0
        assign1 @ FakeCPU:1
        assign2 @ FakeCPU:2
    """)


def test_a_device_that_was_assigned_stays() -> None:
    assert placed("in: FakeInput", assigned={"in": f"{PREFIX}/device:FakeCPU:7"}) == "in @ FakeCPU:7"


def test_xla_devices_are_for_those_that_ask() -> None:
    text = """
        in: FakeInput
        n1: FakeXlaOp(in)
        n2: FakeXlaOp(in:1)
        n3: FakeXlaOp(in) @ /device:XLA_CPU:0
    """
    assert placed(text, assigned={"n2": f"{PREFIX}/device:XLA_CPU:0"}) == lines("""
        in @ FakeCPU:0
        n1 @ FakeCPU:0
        n2 @ XLA_CPU:0
        n3 @ XLA_CPU:0
    """)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # no kernel for the type that is asked for
        ("in: FakeInput @ /device:FakeGPU:0\nvar: FakeVariable @ /device:FakeGPU:0", "in @ FakeCPU:0\nvar @ FakeGPU:0"),
        ("a: FakeInput @ /device:FakeGPU:0", "a @ FakeCPU:0"),
        # no device of that index, or of that type
        ("in: FakeDevice @ /device:FakeGPU:11", "in @ FakeGPU:0"),
        ("in: FakeCPUGPUOutput @ /device:Nothing:0", "in @ FakeGPU:0"),
        # a variable stays where it was asked to be, its user gives way
        (
            "v: FakeVariable @ /device:FakeCPU:3\nw: FakeDeviceEnforce(v) @ /device:FakeGPU:0",
            "v @ FakeCPU:3\nw @ FakeCPU:3",
        ),
    ],
)
def test_soft_placement_goes_elsewhere(text: str, expected: str) -> None:
    assert placed(text) == expected


def test_soft_placement_lets_ops_with_one_kernel_decide() -> None:
    text = """
        var_gpu: VariableGPU
        force_gpu: FakeDeviceEnforce(var_gpu) @ /device:FakeCPU:0
        var_cpu: VariableCPU
        force_cpu: FakeDeviceEnforce(var_cpu) @ /device:FakeGPU:0
    """
    assert placed(text) == lines("""
        var_gpu @ FakeGPU:0
        force_gpu @ FakeGPU:0
        var_cpu @ FakeCPU:0
        force_cpu @ FakeCPU:0
    """)


def test_the_default_local_device_comes_first_where_there_is_a_kernel() -> None:
    devices = fake_devices(2)
    local = devices.by_name(f"{PREFIX}/device:FakeCPU:1")
    text = """
        any: FakeVariable
        gpu: VariableGPU
        index: FakeVariable @ /device:FakeCPU:0
    """
    assert placed(text, devices, default_local_device=local) == lines("""
        any @ FakeCPU:1
        gpu @ FakeGPU:0
        index @ FakeCPU:0
    """)


def test_devices_of_one_type_come_by_index() -> None:
    devices = fake_devices(12)
    assert placed("v: VariableCPU @ /device:FakeCPU:*", devices) == "v @ FakeCPU:0"
    devices.add_device(fake_device("/job:a/replica:0/task:1/device:FakeCPU:10"))
    assert placed("v: VariableCPU @ /task:1", devices) == "v @ /job:a/replica:0/task:1/device:FakeCPU:10"
