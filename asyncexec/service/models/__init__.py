"""Models that are served: what they are, how they are configured, and the repository of them."""
