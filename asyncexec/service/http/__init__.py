"""The service over HTTP: the Open Inference Protocol, Triton's extensions, and the server."""
