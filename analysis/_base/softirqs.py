"""What are Linux's softirq vectors called?"""

SOFTIRQS = (
    "HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU",
)  # fmt: skip
"""By number: include/linux/interrupt.h, unchanged since 4.2."""
