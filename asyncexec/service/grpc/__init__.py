"""The service over gRPC: the Open Inference Protocol, Triton's extensions, and gRPC's own services."""
