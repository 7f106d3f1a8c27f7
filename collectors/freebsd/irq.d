/*
 * irq.d - time in interrupt filters on a FreeBSD host; an addition to sched.d.
 *
 * USAGE
 *     dtrace -s irq.d -s sched.d -o events.txt       or: sh capture --with irq
 *
 * WHAT IT PRINTS
 *     I 61004 3 0 28 1840 6 irq28:      ended, CPU, 0, number, ns, length, name
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

/* sched.d says it again, and prints it. */
BEGIN
{
	began = timestamp;
}

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
	printf("I% d% d 0% d% d% d %s\n", (int64_t)(timestamp - began), (int)cpu,
	    (int)irq_event[cpu]->ie_irq, (int64_t)(timestamp - irq_since[cpu]),
	    (int)strlen(irq_event[cpu]->ie_name), irq_event[cpu]->ie_name);
	irq_since[cpu] = 1;
	@i = count();
}

END
{
	printa("#count\tI\t%@d\n", @i);
}
