"""A WebSocket of sensor readings through a stateful detector of anomalies, for as long as the socket is open.

Each message is one item of a stream.  Decoding and the look-up of a sensor's calibration overlap, 16 messages at a
time; the detector's mean and variance are carried from message to message, in their order.  A message that cannot
be read is told in its place, and changes nothing.  The socket is a local stand-in: the program needs no network.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator

import numpy as np

import asyncexec as ax

NUM_MESSAGES = 400
ANOMALIES = {150: 9.0, 280: -7.0, 281: -6.5}  # message -> degrees off
BROKEN = 200
LIMIT = 6.0  # standard deviations
DECAY = 0.95


class Socket:
    """Gives text messages as ``async for message in websocket`` does, now and then several at once."""

    async def __aiter__(self) -> AsyncIterator[str]:
        for i in range(NUM_MESSAGES):
            if i % 8 == 0:
                await asyncio.sleep(0.001)
            if i == BROKEN:
                yield '{"sensor": "b", "degr'
                continue
            noise = 0.3 * math.sin(12.9898 * i) + 0.2 * math.sin(78.233 * i)
            degrees = 20.0 + math.sin(i / 60) + noise + ANOMALIES.get(i, 0.0)
            offset = {"a": 0.0, "b": 1.5}["ab"[i % 2]]
            yield json.dumps({"sensor": "ab"[i % 2], "degrees": degrees + offset})


@ax.op(outputs=[ax.string, ax.float64], shapes=[[], []])
def read_message(text: str) -> tuple[str, float]:
    message = json.loads(text)
    return message["sensor"], message["degrees"]


@ax.op(outputs=[ax.float64], shapes=[[]])
async def offset_of(sensor: str) -> float:
    """A look-up that takes its time: of a database, say."""
    await asyncio.sleep(0.002)
    return {"a": 0.0, "b": 1.5}[sensor]


def build_graph(socket: Socket) -> tuple[ax.Graph, dict[str, ax.Tensor]]:
    """Decode, calibrate, compare with what has been usual so far, and learn from what is no anomaly."""
    with ax.Graph() as graph:
        text = ax.source(socket, ax.string, [], name="message")
        sensor, raw = read_message(text)
        degrees = raw - offset_of(sensor)
        mean = ax.stream_state(np.float64(20.0), name="mean")
        variance = ax.stream_state(np.float64(1.0), name="variance")
        off = degrees - mean.value
        score = ax.abs(off) / ax.sqrt(variance.value)
        is_anomaly = score > LIMIT
        mean.update(ax.where(is_anomaly, mean.value, DECAY * mean.value + (1 - DECAY) * degrees))
        variance.update(ax.where(is_anomaly, variance.value, DECAY * variance.value + (1 - DECAY) * off * off))
    return graph, {"sensor": sensor, "degrees": degrees, "score": score, "is_anomaly": is_anomaly}


async def main() -> None:
    graph, fetches = build_graph(Socket())
    anomalies, broken, number = [], [], 0
    async with ax.Session(graph) as session, session.stream(fetches, window=16, on_error="yield") as readings:
        async for reading in readings:
            if isinstance(reading, ax.errors.OpError):
                broken.append(number)
                print(f"{reading.message.splitlines()[0]}, at {reading.node}")
            elif reading["is_anomaly"]:
                anomalies.append(number)
                sensor = reading["sensor"].decode()
                print(f"message {number}: sensor {sensor} at {reading['degrees']:.1f}, score {reading['score']:.1f}")
            number += 1
    print(f"{number} messages, {len(anomalies)} anomalies, {len(broken)} unreadable")
    assert anomalies == sorted(ANOMALIES)
    assert broken == [BROKEN]


if __name__ == "__main__":
    ax.run(main)
