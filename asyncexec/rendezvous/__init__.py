"""Where Send meets Recv: one rendezvous a step."""
