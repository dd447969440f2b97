"""ClientGraph -> one graph a device, joined by Send and Recv."""
