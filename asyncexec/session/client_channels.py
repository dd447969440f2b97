"""ClientChannels: a client graph whose feeds and fetches travel by the rendezvous, with what the client has to know."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from asyncexec.executor.client_end import ClientKeys
from asyncexec.framework.cooperative import Stage
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
    send_keys = iter(map(_key, rewritten.sends))
    keys = ClientKeys(
        tuple(None if recv is None else _key(recv) for recv in rewritten.recvs),
        tuple(
            feeds[tensor.op, tensor.index] if (tensor.op, tensor.index) in feeds else next(send_keys)
            for tensor in graph.fetches
        ),
    )
    made_on = rewritten.devices
    ends = zip((*rewritten.recvs, *rewritten.sends), (*graph.feeds, *sent), strict=True)
    return ClientChannels(
        rewritten.graph,
        keys,
        lambda node: made_on.get(node) or devices.of_node(node),
        {node.name: tensor.op for node, tensor in ends if node is not None},
    )


def _key(node: Node) -> str:
    return full_key(rendezvous_key(node.attrs), ROOT_FRAME)
