"""Connections between the processes of a cluster: messages and tensors, pushed to the process that waits for them.

=================  ===================================================================================================
``identity``       who is at an end: name, incarnation, role, program
``options``        limits and times
``address``        ``unix:/path`` and ``tcp:host:port``
``security``       a shared token, TLS
``frames``         bytes into frames: pure, knows no socket
``outbox``         what waits to go out, and what goes out next: pure, too
``handshake``      the records before the first frame: pure, too
``liveness``       pings: whether the peer still answers, and what its clock says
``connection``     what callers use; one asyncio protocol each, no task
``dialing``        ``dial`` and ``listen``
=================  ===================================================================================================
"""
