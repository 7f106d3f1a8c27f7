"""What threads slept or were held back for: calls, locks, disks, interrupts, quotas."""
