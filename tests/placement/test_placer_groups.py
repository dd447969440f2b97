"""Colocation groups: by ``_class``, by references, by resources; whose wish holds."""

from __future__ import annotations

from itertools import product

import pytest

from asyncexec.framework.errors import InvalidArgumentError
from tests.placement.fake_devices import PREFIX, lines, placed

CPU = f"{PREFIX}/device:FakeCPU:0"
GPU = f"{PREFIX}/device:FakeGPU:0"


@pytest.mark.parametrize(
    ("dataset", "iterator", "device"),
    [
        # one of them has a preference
        ("SP", "NP", "FakeCPU"),
        ("RP", "NP", "FakeGPU"),
        ("NP", "SP", "FakeCPU"),
        ("NP", "RP", "FakeGPU"),
        # one of them has no choice
        ("SP", "GPU", "FakeGPU"),
        ("CPU", "RP", "FakeCPU"),
        # they agree, or don't
        ("SP", "SP", "FakeCPU"),
        ("RP", "RP", "FakeGPU"),
        ("SP", "RP", "FakeGPU"),
        ("RP", "SP", "FakeGPU"),
    ],
)
def test_priorities_of_kernels_in_a_group(dataset: str, iterator: str, device: str) -> None:
    text = f"ds: CreateDataset{dataset}\nit: Iterator{iterator}(ds)"
    assert placed(text) == f"ds @ {device}:0\nit @ {device}:0"


KINDS = {"Fake": {"FakeCPU", "FakeGPU"}, "CPU": {"FakeCPU"}, "GPU": {"FakeGPU"}}
PAIRS = list(product(KINDS, repeat=2))


def op_name(stem: str, kind: str) -> str:
    return f"Fake{stem}" if kind == "Fake" else f"{stem}{kind}"


@pytest.mark.parametrize(("variable", "assign"), PAIRS)
@pytest.mark.parametrize("stem", ["", "Handle"])
def test_users_of_a_variable_are_where_it_is(stem: str, variable: str, assign: str) -> None:
    ops = op_name(f"{stem}Variable", variable), op_name(f"{stem}Assign", assign)
    pairs = "".join(f"\nvar_{i}: {ops[0]}\nassign_{i}: {ops[1]}(var_{i}, in)" for i in range(10))
    common = KINDS[variable] & KINDS[assign]
    if not common:
        with pytest.raises(InvalidArgumentError, match="no device type supports both of those nodes"):
            placed(f"in: FakeInput{pairs}")
        return
    device = "FakeGPU:0" if "FakeGPU" in common else "FakeCPU:0"
    expected = [line for i in range(10) for line in (f"var_{i} @ {device}", f"assign_{i} @ {device}")]
    assert placed(f"in: FakeInput{pairs}") == lines(["in @ FakeCPU:0", *expected])


@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("kind", ["assigned", "resource"])
def test_resources_on_two_devices_have_no_common_user(soft: bool, kind: str) -> None:
    wishes = ("", "") if kind == "assigned" else (f" @ {CPU}", f" @ {GPU}")
    text = f"""
        var_cpu: FakeHandleVariable{wishes[0]}
        var_gpu: FakeHandleVariable{wishes[1]}
        two_handles_in: FakeTwoHandlesIn(var_cpu, var_gpu)
    """
    assigned = {"var_cpu": CPU, "var_gpu": GPU} if kind == "assigned" else {}
    with pytest.raises(InvalidArgumentError) as caught:
        placed(text, soft=soft, assigned=assigned)
    assert (
        "Cannot place the graph because a reference or resource edge connects colocation groups with incompatible "
        f"{kind} devices: {GPU} vs {CPU}"
    ) in caught.value.message
    assert caught.value.node == "two_handles_in"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # the user's wish gives way to the variable's
        (
            """
            in: FakeDevice @ /job:a/task:0/device:FakeGPU:0
            var_0: FakeVariable @ /job:a/task:0/device:FakeGPU:0
            assign: FakeAssign(var_0, in) @ /job:a/task:0/device:FakeCPU:0
            """,
            """
            in @ FakeGPU:0
            var_0 @ FakeGPU:0
            assign @ FakeGPU:0
            """,
        ),
        # but holds where the variable's leaves room
        (
            """
            in: FakeCPUGPUOutput @ /job:a/task:0
            var_0: FakeVariable @ /job:a/task:0
            assign: FakeAssign(var_0, in) @ /job:a/task:0/device:FakeCPU:0
            """,
            """
            in @ FakeCPU:0
            var_0 @ FakeCPU:0
            assign @ FakeCPU:0
            """,
        ),
        # or where it has none
        (
            """
            in: FakeDevice @ /job:a/task:0/device:FakeGPU:0
            var_0: FakeVariable
            assign: FakeAssign(var_0, in) @ /job:a/task:0/device:FakeCPU:0
            """,
            """
            in @ FakeGPU:0
            var_0 @ FakeCPU:0
            assign @ FakeCPU:0
            """,
        ),
    ],
)
def test_whose_wish_holds_at_a_reference_edge(text: str, expected: str) -> None:
    assert placed(text, soft=False) == lines(expected)


def test_a_node_goes_with_the_one_that_its_class_names() -> None:
    text = """
        in: FakeInput
        colocated_1: FakeRelu[_class=["loc:@in"]](in)
        foo: FakeRelu(in)
    """
    assert placed(text) == lines("""
        in @ FakeCPU:0
        colocated_1 @ FakeCPU:0
        foo @ FakeGPU:0
    """)


def test_a_node_may_be_in_several_groups() -> None:
    text = """
        in: FakeInput
        colocated_1: FakeRelu[_class=["loc:@in"]](in)
        foo: FakeRelu[_class=["loc:@in", "loc:@colocated_1", "other"]](in)
    """
    assert placed(text) == lines("""
        in @ FakeCPU:0
        colocated_1 @ FakeCPU:0
        foo @ FakeCPU:0
    """)


def test_groups_that_no_type_supports_are_an_error_or_given_up() -> None:
    text = """
        in: FakeInput
        colocated_1: ReluCPU[_class=["loc:@in"]](in)
        foo: ReluGPU[_class=["loc:@in", "loc:@colocated_1"]](in)
    """
    with pytest.raises(InvalidArgumentError) as caught:
        placed(text, soft=False)
    assert (
        "Cannot colocate nodes {{colocation_node foo}} and {{colocation_node in}} because no device type supports both "
        "of those nodes and the other nodes colocated with them"
    ) in caught.value.message
    assert placed(text) == lines("""
        in @ FakeCPU:0
        colocated_1 @ FakeCPU:0
        foo @ FakeGPU:0
    """)


def test_groups_by_class_and_by_reference_are_one() -> None:
    text = """
        in: FakeInput
        var1: VariableCPU
        var2: VariableCPU
        assign1: FakeAssign[_class=["loc:@var1"]](var1, in)
        assign2: FakeAssign[_class=["loc:@var2"]](var2, in)
    """
    assert placed(text) == lines("""
        in @ FakeCPU:0
        var1 @ FakeCPU:0
        var2 @ FakeCPU:0
        assign1 @ FakeCPU:0
        assign2 @ FakeCPU:0
    """)


def test_a_class_that_a_reference_contradicts() -> None:
    text = """
        in: FakeInput
        var2: VariableCPU
        var3: VariableGPU
        assign2: FakeAssign[_class=["loc:@var2"]](var2, in)
        assign3: FakeAssign[_class=["loc:@var2"]](var3, in)
    """
    with pytest.raises(InvalidArgumentError) as caught:
        placed(text, soft=False)
    assert (
        "Cannot colocate nodes {{colocation_node assign3}} and {{colocation_node var2}} because no device type "
        "supports both of those nodes and the other nodes colocated with them."
    ) in caught.value.message
    assert placed(text) == lines("""
        in @ FakeCPU:0
        var2 @ FakeCPU:0
        var3 @ FakeGPU:0
        assign2 @ FakeCPU:0
        assign3 @ FakeGPU:0
    """)


def test_many_groups_that_overlap() -> None:
    first = "".join(f"\nvar_{i}: FakeVariable\nassign_{i}: FakeAssign(var_{i}, in)" for i in range(10))
    more = "".join(
        f'\nvar_{i}: FakeVariable[_class=["loc:@var_{i % 6}"]]'
        f'\nassign_{i}: FakeAssign[_class=["loc:@assign_{i % 3}"]](var_{i}, in)'
        for i in range(10, 100)
    )
    found = dict(line.split(" @ ") for line in placed(f"in: FakeInput{first}{more}").splitlines())
    for i in range(10):
        assert found[f"var_{i}"] == found[f"assign_{i}"]
    for i in range(10, 100):
        assert found[f"var_{i}"] == found[f"assign_{i}"] == found[f"var_{i % 6}"] == found[f"assign_{i % 3}"]
    assert len(found) == 201


def test_one_asked_for_device_moves_all_groups_that_hang_together() -> None:
    text = """
        a: FakeVariable
        b: FakeVariable[_class=["loc:@a"]]
        use: FakeDeviceEnforce(b)
        c: FakeRelu[_class=["loc:@d"]](use)
        d: FakeDeviceEnforce[_class=["loc:@a"]](b) @ /device:FakeCPU:5
    """
    assert set(placed(text, soft=False).splitlines()) == {f"{name} @ FakeCPU:5" for name in ("a", "b", "use", "c", "d")}


def test_a_resource_moves_to_where_its_user_has_a_kernel() -> None:
    text = """
        ds: CreateDatasetSP @ /device:FakeCPU:0
        it: IteratorGPU(ds)
    """
    assert placed(text) == lines("""
        ds @ FakeGPU:0
        it @ FakeGPU:0
    """)


def test_what_a_resource_asks_for_holds_as_if_assigned() -> None:
    text = """
        a: Placeholder[resource] @ /device:FakeGPU:0
        b: Placeholder[resource] @ /device:FakeCPU:0
        id1: Identity[_class=["loc:@id2"]](a)
        id2: Identity(b)
    """
    with pytest.raises(InvalidArgumentError) as caught:
        placed(text, soft=False)
    assert (
        "Cannot colocate nodes {{colocation_node id2}} and {{colocation_node id1}}: Cannot merge devices with "
        "incompatible types: '/device:FakeCPU:0' and '/device:FakeGPU:0'"
    ) in caught.value.message
    assert placed(text) == lines("""
        a @ FakeGPU:0
        b @ FakeCPU:0
        id1 @ FakeGPU:0
        id2 @ FakeCPU:0
    """)


def test_what_a_user_of_a_resource_asks_for_may_be_overridden() -> None:
    text = """
        a: Placeholder[resource]
        b: Placeholder[resource]
        id_a: Identity(a) @ /device:FakeGPU:0
        id_b: Identity(b) @ /device:FakeCPU:0
        id1: Identity[_class=["loc:@id2"]](id_a)
        id2: Identity(id_b)
    """
    assert len({line.split(" @ ")[1] for line in placed(text).splitlines()}) == 1


def test_assigned_devices_are_not_overridden() -> None:
    text = """
        a: Placeholder[resource]
        b: Placeholder[resource]
        id_a: Identity(a)
        id_b: Identity(b)
        id1: Identity[_class=["loc:@id2"]](id_a)
        id2: Identity(id_b)
    """
    assigned = {"id_a": GPU, "id_b": CPU}
    with pytest.raises(InvalidArgumentError) as caught:
        placed(text, soft=False, assigned=assigned)
    assert (
        "Cannot colocate nodes {{colocation_node id2}} and {{colocation_node id1}}: Cannot merge devices with "
        f"incompatible types: '{CPU}' and '{GPU}'"
    ) in caught.value.message
    assert placed(text, assigned=assigned) == lines("""
        a @ FakeGPU:0
        b @ FakeCPU:0
        id_a @ FakeGPU:0
        id_b @ FakeCPU:0
        id1 @ FakeGPU:0
        id2 @ FakeCPU:0
    """)
