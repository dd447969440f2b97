"""ClientChannels: a client graph whose feeds and fetches travel by the rendezvous, with what the client has to know."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from asyncexec.executor.engine.client_end import ClientKeys
from asyncexec.framework.cooperative import STRIDE, Stage, in_parts
from asyncexec.framework.rendezvous import ROOT_FRAME, full_key
from asyncexec.graph.node import Node
from asyncexec.partition.send_recv import rendezvous_key
from asyncexec.pruning.feed_fetch_rewrite import ChannelDevices, rewrite_feeds_and_fetches
from asyncexec.pruning.prune import ClientGraph


@dataclass(frozen=True, slots=True, eq=False)
class ClientChannels:
    """The channels between the client and the steps of one signature.

    Attributes:
        graph: what runs, with their _Recvs and _Sends.
        keys: those of the channels.
        device_of: the name of a node's device.
        stand_ins: by the name of a _Recv or _Send, the node of the user's that an error is to name in its place.
    """

    graph: ClientGraph
    keys: ClientKeys
    device_of: Callable[[Node], str]
    stand_ins: Mapping[str, Node]


def connect_client(graph: ClientGraph, devices: ChannelDevices) -> Stage[ClientChannels]:
    """Channels for the feeds and fetches of *graph*, as a stage.  A fetch that is fed needs none: it is that feed.

    Errors as of rewrite_feeds_and_fetches().
    """
    feeds = {(tensor.op, tensor.index): position for position, tensor in enumerate(graph.feeds)}
    sent = tuple(tensor for tensor in graph.fetches if (tensor.op, tensor.index) not in feeds)
    rewritten = yield from rewrite_feeds_and_fetches(replace(graph, fetches=sent), devices)
    sends = iter((yield from _keys(rewritten.sends)))
    recvs = yield from _keys(rewritten.recvs)
    fetches: list[str | int] = []
    for tensors in in_parts(graph.fetches):
        positions = [feeds.get((tensor.op, tensor.index)) for tensor in tensors]
        fetches += [next(sends) if position is None else position for position in positions]
        yield
    keys = ClientKeys(tuple(recvs), tuple(fetches))
    made_on = rewritten.devices
    ends = zip((*rewritten.recvs, *rewritten.sends), (*graph.feeds, *sent), strict=True)
    return ClientChannels(
        rewritten.graph,
        keys,
        lambda node: made_on.get(node) or devices.of_node(node),
        {node.name: tensor.op for node, tensor in ends if node is not None},
    )


def _keys(nodes: Sequence[Node | None]) -> Stage[list[Any]]:
    """The key of each of *nodes*; None where there is none."""
    keys: list[str | None] = []
    for start in range(0, len(nodes), STRIDE):
        part = nodes[start : start + STRIDE]
        keys += [None if node is None else full_key(rendezvous_key(node.attrs), ROOT_FRAME) for node in part]
        yield
    return keys
