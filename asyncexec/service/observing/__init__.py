"""What the service tells of itself: metrics, logs, spans and traces."""
