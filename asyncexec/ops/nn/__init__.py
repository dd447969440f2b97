"""Neural networks: activations, convolutions, pooling, losses, training."""
