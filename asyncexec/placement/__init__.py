"""Every node gets a device."""
