"""Sessions over several processes and machines: clusters, workers, and what starts them."""
