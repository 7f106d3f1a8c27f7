"""The names of Linux's softirq vectors."""

SOFTIRQS = (
    "HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU",
)  # fmt: skip
"""By number: include/linux/interrupt.h, unchanged since 4.2."""


def softirq(number: int) -> str:
    """The name of a softirq in tables.

    >>> softirq(3), softirq(99)
    ('softirq NET_RX', 'softirq 99')
    """
    return f"softirq {SOFTIRQS[number] if number < len(SOFTIRQS) else number}"
