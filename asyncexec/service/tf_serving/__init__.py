"""TensorFlow Serving's protocols, over HTTP and gRPC."""
