/*
 * irq.d - time in interrupt filters on a FreeBSD host; an addition to sched.d.
 *
 * USAGE
 *     dtrace -s irq.d -s sched.d -o events.txt       or: sh capture --with irq
 *
 * WHAT IT PRINTS
 *     I  8213461004  3  irq  28  1840  7  irq28:           ended, CPU, number, ns
 * Interrupt threads need no help: they are threads, and sched.d shows them. This
 * is the part before: the filter that decides whether to wake one.
 *
 * OVERHEAD
 *     Two fbt probes per device interrupt. Timer interrupts do not pass here.
 *
 * REQUIREMENTS
 *     Those of sched.d. Hangs on a kernel function's name (intr_event_handle,
 *     the same in 13, 14, 15 and main), which is why it is not part of sched.d.
 */

/* sched.d has arguments; this script has no use for them. */
#pragma D option argref

fbt::intr_event_handle:entry
{
	irq_since[cpu] = timestamp;
	irq_event[cpu] = (struct intr_event *)arg0;
}

/* Interrupts are off in between, so one slot per CPU is enough. 1 marks it as empty: 0 would
 * free it (sched.d says what that costs). */
fbt::intr_event_handle:return
/irq_since[cpu] > 1/
{
	printf("I\t%d\t%d\tirq\t%d\t%d\t%d\t%s\n", timestamp, cpu,
	    irq_event[cpu]->ie_irq, timestamp - irq_since[cpu],
	    strlen(irq_event[cpu]->ie_name), irq_event[cpu]->ie_name);
	irq_since[cpu] = 1;
	@i = count();
}

END
{
	printa("#count\tI\t%@d\n", @i);
}
