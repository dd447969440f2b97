"""A WebSocket of sensor readings through a stateful detector of anomalies, for as long as the socket is open.

Each message is one item of a stream.  Decoding and the look-up of a sensor's calibration overlap, 16 messages at a
time; the detector's mean and variance are carried from message to message, in their order, and a window of the last 50
tells whether anomalies pile up.  A message that cannot be read is told in its place, and changes nothing.  The sensors
are a WebSocket server in this program, on a free port of this machine.  It needs ``pip install "asyncexec[demo]"``.
"""

from __future__ import annotations

import asyncio
import json
import math

import numpy as np
from websockets.asyncio.client import ClientConnection, connect
from websockets.asyncio.server import ServerConnection, serve

import asyncexec as ax

NUM_MESSAGES = 400
ANOMALIES = {150: 9.0, 280: -7.0, 281: -6.5}  # message -> degrees off
BROKEN = 200
LIMIT = 6.0  # standard deviations
DECAY = 0.95
MANY = 2  # anomalies within 50 messages


async def sensors(connection: ServerConnection) -> None:
    """Send readings of two sensors to who connects, now and then several at once."""
    for i in range(NUM_MESSAGES):
        if i % 8 == 0:
            await asyncio.sleep(0.001)
        noise = 0.3 * math.sin(12.9898 * i) + 0.2 * math.sin(78.233 * i)
        degrees = 20.0 + math.sin(i / 60) + noise + ANOMALIES.get(i, 0.0)
        sensor, offset = ("a", 0.0) if i % 2 == 0 else ("b", 1.5)
        message = json.dumps({"sensor": sensor, "degrees": degrees + offset})
        await connection.send(message[:20] if i == BROKEN else message)


@ax.op(outputs=[ax.string, ax.float64], shapes=[[], []])
def read_message(text: str) -> tuple[str, float]:
    message = json.loads(text)
    return message["sensor"], message["degrees"]


@ax.op(outputs=[ax.float64], shapes=[[]])
async def offset_of(sensor: str) -> float:
    """A look-up that takes its time: of a database, say."""
    await asyncio.sleep(0.002)
    return {"a": 0.0, "b": 1.5}[sensor]


def build_graph(socket: ClientConnection) -> tuple[ax.Graph, dict[str, ax.Tensor]]:
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
        alarm = ax.reduce_sum(ax.cast(ax.window(is_anomaly, size=50), ax.int32)) >= MANY
        mean.update(ax.where(is_anomaly, mean.value, DECAY * mean.value + (1 - DECAY) * degrees))
        variance.update(ax.where(is_anomaly, variance.value, DECAY * variance.value + (1 - DECAY) * off * off))
    return graph, {"sensor": sensor, "degrees": degrees, "score": score, "is_anomaly": is_anomaly, "alarm": alarm}


async def watch(socket: ClientConnection) -> None:
    graph, fetches = build_graph(socket)
    anomalies, broken, number = [], [], 0
    async with ax.Session(graph) as session, session.stream(fetches, window=16, on_error="yield") as readings:
        async for reading in readings:
            if isinstance(reading, ax.errors.OpError):
                broken.append(number)
                print(f"{reading.message.splitlines()[0]}, at {reading.node}")
            elif reading["is_anomaly"]:
                anomalies.append(number)
                sensor, degrees, score = reading["sensor"], reading["degrees"], reading["score"]
                alarm = ", ALARM" if reading["alarm"] else ""
                print(f"message {number}: sensor {sensor} at {degrees:.1f}, score {score:.1f}{alarm}")
            number += 1
    print(f"{number} messages, {len(anomalies)} anomalies, {len(broken)} unreadable")
    assert anomalies == sorted(ANOMALIES)
    assert broken == [BROKEN]


async def main() -> None:
    async with serve(sensors, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with connect(f"ws://127.0.0.1:{port}", proxy=None) as socket:
            await watch(socket)


if __name__ == "__main__":
    ax.run(main)
