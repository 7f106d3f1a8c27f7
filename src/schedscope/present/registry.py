"""Every column that an analysis returns: its heading, how it is shown, its unit, what it means.

This is the only place that says so: tables in a terminal, in the report and in notebooks are made
from these declarations, and so is the list that `docs/columns.py` prints. A name means the same in
every answer and has one heading. The exceptions are a few names that depend on the question, above
all `n`, which counts whatever the rows are about; their meanings are under `question.name`.

Columns named `p50`, `p99.9`, ... are quantiles. They are shown like the `mean` beside them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Literal

Kind = Literal["text", "right", "id", "count", "time", "at", "share", "number", "fixed"]

UNITS: dict[Kind, str] = {"time": "ns", "at": "ns", "share": "fraction"}
"""Units in frames, JSON and CSV; tables choose a readable one."""


@dataclass(frozen=True, slots=True)
class Meaning:
    """One column of one or more answers.

    `kind` is how a table shows it:

    * `text` is left-aligned and `right` right-aligned: a list of numbers;
    * `id` has digits but is not a quantity; `count` is one;
    * `time` is a duration and `at` an instant;
    * `share` is a fraction, shown in per cent;
    * `number` is shown with four digits, `fixed` with two decimals.
    """

    name: str
    heading: str
    kind: Kind
    doc: str
    question: str = ""

    @property
    def unit(self) -> str:
        """The unit of the values in frames, JSON and CSV; empty if they have none."""
        return UNITS.get(self.kind, "")


def _parsed(table: str, question: str = "") -> list[Meaning]:
    """Lines of `name | heading | kind | meaning`."""
    found = []
    for line in filter(None, map(str.strip, table.splitlines())):
        name, heading, kind, doc = (cell.strip() for cell in line.split("|"))
        found.append(Meaning(name, heading or name, kind, doc, question))  # type: ignore[arg-type]
    return found


THREADS = """
comm            |                   | text  | name of the thread
tid             |                   | id    | thread id
pid             |                   | id    | process id
utid | | id | number of the thread in this trace; unique even where tids are reused
prio            |                   | id    | priority on the system's own scale
sched_class     | class             | text  | scheduling class
by_class        | to class          | text  | scheduling class of the thread that got the CPU
kernel          |                   | text  | whether it is a kernel thread
recorder        |                   | text  | whether it belongs to the recorder
affinity        |                   | text  | CPUs that the thread may use
process_name    | process           | text  | name of the process
cgroup          |                   | text  | control group of the process
service         |                   | text  | units and containers named in the control group's path
cmdline         | command line      | text  | command line of the process
ppid            |                   | text  | process that created this one
sharing | | text | set of threads that share CPU time by weight: a scheduling class
weight          |                   | count | weight by which CPU time is shared; 1024 is nice 0
basis           | weights from      | text  | where the weights come from
threads         |                   | count | number of threads in the row
scheduler       |                   | text  | scheduler whose rule is applied
evidence        |                   | text  | how it is known that a control group was throttled
"""

PLACES = """
cpu             | CPU               | id    | number of the CPU
core            |                   | id    | number of the core
llc             | LLC               | id    | number of the last-level cache
package         |                   | id    | number of the package
numa_node       | NUMA node         | id    | number of the NUMA node
from_cpu        | from CPU          | id    | CPU before
to_cpu          | to CPU            | id    | CPU after
cpu_a           | CPU a             | id    | one of two CPUs
cpu_b           | CPU b             | id    | the other one
prev_cpu        | prev CPU          | id    | CPU on which the thread ran before
queue_cpu       | queue CPU         | id    | CPU on whose queue the thread waited
waker_cpu       | waker CPU         | id    | CPU on which the waker ran
top_cpu         | most on           | id    | CPU with the most running time
idle_cpu        | idle CPU          | id    | CPU that was idle longest meanwhile
cpus            | CPUs              | right | list of CPUs, or their number
idle_cpus | idle CPUs | right | CPUs that the thread may use and that were idle meanwhile
allowed         | allowed CPUs      | right | CPUs that at least one of the threads may use
used            | used CPUs         | right | CPUs that at least one of the threads used
distance        |                   | text  | how far apart two CPUs are: smt, llc, package, numa
lane            |                   | text  | row of the figure
"""

INSTANTS = """
ts              | at                | at    | instant, or start of the time bucket
ts_ready        | ready at          | at    | when the wait started
ts_run          | ran at            | at    | when the wait ended
ts_max | max at | at | start of the longest wait, or when the largest depth was reached
ts_longest      | longest at        | at    | start of the longest wait, episode or stretch
ts_first        | first at          | at    | start of the first run there
ts_last         | last at           | at    | start of the last run there
ts_interactive  | interactive at    | at    | when the thread first counted as interactive
ts_settled | settled at | at | instant from which unknown history before the trace no longer matters
ts_lag          | lag at            | at    | instant at which the thread had this lag
ts_lag_max      | max lag at        | at    | instant at which the lag was largest
ts_lag_min      | min lag at        | at    | instant at which the lag was smallest
"""

TIMES = """
dur             | duration          | time  | length of the interval
total           |                   | time  | sum of the lengths
total_censored  | unfinished total  | time  | sum of the lengths so far of the unfinished ones
mean            |                   | time  | mean
max             |                   | time  | largest
total_high      | total at most     | time  | upper bound of the sum, where events are missing
mean_high       | mean at most      | time  | upper bound of the mean
a_high | a at most | number | upper bound of the first setting's value
b_high | b at most | number | upper bound of the other setting's value
coverage_a | coverage a | share | measured part of the time that may have been waited in `a`
coverage_b | coverage b | share | measured part of the time that may have been waited in `b`
slowdown_high | slowdown at most | number | upper bound of the slowdown
max_high | max at most | time | upper bound of the largest; null if that was not over at the end
coverage | | share | measured part of the time that may have been waited
wait_high | wait at most | time | upper bound of the wait; null where nothing bounds it
max_censored    | max unfinished    | time  | longest unfinished one, as far as it was observed
longest         |                   | time  | longest one
wait            |                   | time  | time waited for a CPU
off             | off CPU           | time  | time off the CPU before this run, sleep included
wait_mean       | mean wait         | time  | mean wait
wait_p50        | wait p50          | time  | median wait
wait_p99        | wait p99          | time  | 99th percentile of the waits
wait_max        | max wait          | time  | longest wait
waiting         |                   | time  | time waited for a CPU
waited          |                   | time  | time waited
time            |                   | time  | CPU time
busy            |                   | time  | time with a thread on the CPU
idle            |                   | time  | time with no thread on the CPU
unknown         |                   | time  | time in which the trace does not show what happened
observed        |                   | time  | time in which the trace shows what happened
running         |                   | time  | time on a CPU
queued          |                   | time  | time waited on the new CPU's queue
queue           |                   | time  | time on the queue
placement       |                   | time  | time from the wakeup until the thread was on a queue
since           | since last run    | time  | time since the thread last ran
since_from      | since last run    | time  | time since the last run: lower end of the range
since_to        | to                | time  | time since the last run: upper end of the range
away_p50        | away p50          | time  | median time on the other CPU
away_min        | away min          | time  | shortest time on the other CPU
due             |                   | time  | CPU time due by weight
received        |                   | time  | CPU time received
served          |                   | time  | CPU time received by all competing threads together
lag             |                   | time  | CPU time due minus CPU time received
vlag            | virtual lag       | time  | lag in the scheduler's virtual time
lag_max         | max lag           | time  | largest lag
lag_min         | min lag           | time  | smallest lag
lag_most        | max lag           | time  | largest lag of any thread
competed        |                   | time  | time on a queue or running
unplaced        | no queue          | time  | time waited while the queue was not known
capacity        |                   | time  | length of the window times the number of CPUs
dispatch        | dispatch delay    | time  | idle time with a thread on the CPU's own queue
spare           |                   | time  | idle time with no thread on the CPU's own queue
available | avoidable idle | time | idle time while a thread that may use the CPU waited elsewhere
wasted          | avoidable idle    | time  | idle CPU time that waiting threads could have used
wasted_any      | any avoidable     | time  | time in which there was avoidable idle time
avoidable | avoidable wait | time | time waited while a CPU that the thread may use was idle
pinned          |                   | time  | time waited by threads with one CPU, or a changed mask
overload        | overloaded        | time  | time in which more than one thread wanted the CPU
waiting_unknown | of unknown depth  | time  | time waited while the depth of the queue was not known
held | | time | time that threads spent on the queue, summed over threads
irq_hard        | in IRQs           | time  | time in interrupt handlers
irq_soft        | in softirqs       | time  | time in soft interrupts
wall            |                   | time  | elapsed time
preempted       |                   | time  | time waited after preemptions
lost            |                   | time  | time waited after losing the CPU
culprit_time    | culprit's time    | time  | CPU time of the culprit
others          |                   | time  | CPU time of all other threads
idle_allowed    | idle elsewhere    | time  | idle time of the other CPUs that the thread may use
idle_cpu_time   | longest idle      | time  | idle time of the CPU that was idle longest
behind_better   | better prio ahead | time | time waited behind a thread of better priority
behind_same     | same prio ahead | time  | time waited behind a thread of the same priority
behind_worse    | worse prio ahead | time  | time waited behind a thread of worse priority
interrupted     |                   | time  | time waited while the CPU handled interrupts
cpu_idle | CPU idle | time | time waited while the CPU was idle and could have run the thread
throttled       |                   | time  | time waited while the group's CPU quota was used up
worse | worse prio | time | CPU time while of worse priority than the waiting thread
inversion | | time | time waited behind a worse priority where priority, not weight, decides
cost            |                   | time  | thread or CPU time affected by the finding
completion      |                   | time  | time until the last thread ended
wait_distance | wait distance | time | distance between the distributions of waits (Wasserstein)
shift           |                   | time  | median time between matched instants of blocking
outside         |                   | time  | running time outside the allowed CPUs
interactive     |                   | time  | time in which the thread counted as interactive
cause_wake      | of wake           | time  | time in waits after a wakeup
cause_new       | of new            | time  | time in waits of a new thread
cause_preempt   | of preempt        | time  | time in waits after a preemption
cause_yield     | of yield          | time  | time in waits after a yield
cause_unknown   | of unknown        | time  | time in waits of unknown cause
"""

COUNTS = """
n               | count             | count | number of what the rows are about
n_censored      | unfinished        | count | number unfinished when last observed
n_excluded      | excluded          | count | number not measured because the start was not recorded
n_ambiguous     | ambiguous         | count | preemptions or yields; the trace does not show which
n_voluntary     | voluntary         | count | switches at which the thread gave up the CPU by itself
n_involuntary   | involuntary       | count | switches at which the thread was preempted
n_new           | forks             | count | forks among the wakeups
n_waited        | waited anyway     | count | migrations after which the thread waited anyway
n_waits         | waits             | count | waits
n_wakeups       | wakeups           | count | wakeups
n_pinned        | pinned threads    | count | threads with one CPU, or a changed mask, that waited
n_migrations    | migrations        | count | migrations
n_preemptions   | preemptions       | count | preemptions
n_switches      | switches          | count | context switches
n_starved       | starved           | count | threads that starved
n_at_risk       | at least as long  | count | waits that lasted at least this long
n_ended         | ended             | count | waits that ended at this length
n_events        | kernel's moves    | count | moves of threads that the kernel reported
n_reported      | reported          | count | migrations that the kernel reported
n_fork          | at fork           | count | migrations at fork, which the kernel does not report
n_silent        | not reported      | count | migrations that the kernel did not report
n_repeated      | moved again       | count | moves followed by another one before the thread ran
n_returned      | undone            | count | moves that were undone before the thread ran
n_open          | no run after      | count | moves after which no run was recorded
n_early         | no run before     | count | moves before which no run was recorded
n_idle          | idle threads      | count | moves of idle threads
n_elsewhere     | elsewhere         | count | moves after which the thread ran on a third CPU
n_unseen | start not seen | count | migrations for which only the end of the new run was recorded
runs            |                   | count | runs on a CPU
outside_runs    | outside           | count | runs outside the allowed CPUs
switches        |                   | count | context switches
episode         |                   | count | number of the episode: its rank
same_cpu        | same CPU          | count | runs on the same CPU as the one before
same_llc | same LLC | count | runs on a CPU with the same last-level cache as the one before
picks           |                   | count | times the thread got the CPU
picks_eligible  | eligible picks    | count | times it got the CPU while eligible
transitions     | changes           | count | changes between interactive and not
culprit_threads | culprit's threads | count | threads of the culprit
agree           |                   | count | reports that agree with the trace at their instant
near            |                   | count | reports that agree with the trace within 10 µs
max_difference  | max difference    | count | largest difference in either direction
depth           |                   | count | threads that wanted the CPU
waiting_max     | max waiting       | count | largest number of threads that waited at once
depth_max       | max depth         | count | largest number of threads that wanted the CPU at once
run             |                   | count | number of the run
"""

FRACTIONS = """
share           |                   | share | share of the sum
time_frac       | time share        | share | time as a share of the wait
cost_frac       | cost share        | share | cost as a share of the time of all CPUs
busy_frac       | busy share        | share | busy time as a share of the known time
running_frac    | running share     | share | running time as a share of the total
waiting_frac    | waiting share     | share | waiting time as a share of the total
idle_frac       | idle share        | share | idle time as a share of the total
unknown_frac | unknown share | share | time that the trace does not show, as a share of the total
involuntary_frac_min | involuntary min | share | share of switches that were certainly involuntary
involuntary_frac_max | involuntary max | share | share of switches that may have been involuntary
lost_frac       | lost share        | share | share of all time lost
overload_frac | overloaded | share | share of the time with more than one thread wanting the CPU
avoidable_frac | avoidable share | share | share of the wait in which a usable CPU was idle
wasted_frac     | of known time     | share | avoidable idle time as a share of the known time
wasted_idle_frac | of idle time     | share | avoidable idle time as a share of the idle time
agree_frac      | agreement         | share | share of reports that agree at their instant
near_frac       | near agreement    | share | share of reports that agree within 10 µs
moved_frac      | migrated          | share | share of runs that were migrations
top_frac | top share | share | share of the running time that was on the CPU with the most of it
same_cpu_frac   | same CPU share    | share | share of runs on the same CPU as the one before
same_llc_frac | same LLC share | share | share of runs under the same last-level cache as before
cpu_frac        | CPU share         | share | share of the CPU's time
culprit_frac    | culprit share     | share | share of the wait in which the culprit ran
interactive_frac | interactive share | share | share of the time counted as interactive
share_due       | share due         | share | share of the CPU time due by weight
share_received  | share received    | share | share of the CPU time received
cpu_time_err    | CPU time error    | share | share of CPU time that went to another thread
survival        |                   | share | share of waits that last longer
lower           |                   | number | lower end of the confidence interval
upper           |                   | number | upper end of the confidence interval
frac            | share             | share | share of waits that are not longer
"""

NUMBERS = """
rate_hz         | per second        | number | per second
switches_hz     | switches/s        | number | context switches per second
effective_cpus | effective CPUs | number | CPUs that running time was spread over (exp of entropy)
effective_llcs | effective LLCs | number | last-level caches that running time was spread over
mean_difference | mean difference   | number | mean difference
slowdown        |                   | number | (CPU time + waiting) / CPU time
fairness        |                   | number | Jain's index of the fair class
jain | Jain's index | fixed | 1 if all got the same part of what was due, 1/n if one of n got all
least           | lowest ratio      | number | lowest ratio of received to due
most            | highest ratio     | number | highest ratio of received to due
order           |                   | number | Kendall's tau of the order in which threads blocked
wait_p50_ratio  | p50 ratio         | number | replay over real
wait_p99_ratio  | p99 ratio         | number | replay over real
waits_ratio     | waits ratio       | number | replay over real
switches_ratio  | switches ratio    | number | replay over real
preemptions_ratio | preemptions ratio | number | replay over real
migrations_ratio | migrations ratio | number | replay over real
elapsed_ratio   | elapsed ratio     | number | replay over real
depth_ratio     | depth ratio       | number | replay over real
value           |                   | number | value in the unit of the series
score           |                   | right  | score by the scheduler's rule
score_min       | min score         | right  | lowest score
score_max       | max score         | right  | highest score
"""

WORDS = """
configuration | | text | recorded, replayed as it was, or replayed with the change
cause           |                   | text  | why
dsq             | dispatch queue    | text  | dispatch queue of sched_ext where a wait was longest
kind            |                   | text  | what kind of row it is
state           |                   | text  | state of the thread
reason          |                   | text  | wait message, lock or system call, if known
criterion       |                   | text  | threshold that was exceeded
censored        |                   | text  | `right` if unfinished when last observed
culprit | | text | name of the threads that had the CPU longest during the wait
story           | what happened     | text  | the row as a sentence
text            | finding           | text  | the finding as a sentence
level           |                   | text  | how serious the row is
check           |                   | text  | what was checked
topic           |                   | text  | what the finding is about
about | | text | what it concerns: `threads` (those selected) or the `machine`
command         |                   | text  | command that shows the details
advice          |                   | text  | what to try
whatif          | what-if           | text  | command that tests the advice
found           |                   | count | how much was found
unit            |                   | text  | unit of the numbers in the row
trace           |                   | count | number of the trace in the list
setting         |                   | text  | which setting the row is about
thread          |                   | text  | group of threads, by name pattern
role            |                   | text  | role within the group
victim          |                   | text  | thread that waited
victim_comm     | victim            | text  | name of the thread that waited
victim_tid      | victim tid        | id    | thread id of the victim
victim_pid      | victim pid        | id    | process id of the victim
victim_utid     | victim utid       | id    | number of the victim in this trace
victim_process_name | victim process | text | name of the process of the victim
victim_cgroup | victim cgroup | text | control group of the victim
victim_service | victim service | text | units and containers named in the victim's control group
ran             |                   | text  | what ran meanwhile
waker           |                   | text  | what woke the thread
woken           |                   | text  | thread that was woken
waker_kind      | waker kind        | text  | thread, interrupt, idle or unknown
waker_comm      | waker             | text  | name of the waker
waker_tid       | waker tid         | id    | thread id of the waker
waker_pid       | waker pid         | id    | process id of the waker
waker_utid      | waker utid        | id    | number of the waker in this trace
waker_process_name | waker process | text | name of the process of the waker
waker_cgroup | waker cgroup | text | control group of the waker
waker_service | waker service | text | units and containers named in the waker's control group
interrupt       |                   | text  | interrupt handler that woke the thread
other_comm      | other             | text  | name of the thread at the other end
other_tid       | other tid         | id    | thread id of the other thread
other_utid      | other utid        | id    | number of the other thread in this trace
ended           |                   | text  | what ended the step or run
leak            |                   | text  | whether the thread could have run elsewhere
turn            |                   | text  | what the thread did at this instant
eligible        |                   | text  | whether the lag was zero or positive
settled | | text | whether the unknown history before the trace no longer matters
is_interactive  | interactive at end | text | whether the thread counted as interactive at the end
by_kernel       | by kernel         | text   | whether the score is the kernel's own (--with inter)
comm_least      | lowest            | text  | thread with the lowest ratio
comm_most       | highest           | text  | thread with the highest ratio
definition      |                   | text  | tool whose rule is applied
counts          |                   | text  | what the tool counts
leaves_out      | leaves out        | text  | what the tool leaves out
against         |                   | text  | what the real trace is compared with
policy          |                   | text  | scheduling policy
family          |                   | text  | scheduler family
summary         |                   | text  | one sentence
models          |                   | text  | source and release of the modelled scheduler
preset          |                   | text  | policy of which this one is a preset
name            |                   | text  | name
default         |                   | text  | default value
choices         |                   | text  | possible values
doc             | meaning           | text  | what it means
series          |                   | text  | name of the recorded quantity
end             |                   | text  | how the run ended
"""

# What `n` counts, and the few other names that depend on the question.
QUESTIONS = {
    "latency": "n | waits | count | waits that were measured",
    "latency_histogram": """
        from  |       | time  | lower end: none of these waits is shorter
        to    |       | time  | upper end: all of these waits are shorter
        n     | waits | count | waits that were measured
        waits | share of the most | text | bar: the count relative to the most frequent range's
    """,
    "definitions": "n | waits | count | waits as the tool counts them",
    "survival": "n | waits | count | waits",
    "interference": "n | in waits | count | waits in which it ran",
    "wait_breakdown": "n | waits | count | waits of the threads in the row",
    "off_cpu": """
        n | times off CPU | count | times that a thread left the CPU to sleep or block
        evidence | | text | how the cause is known, or why it is not
        lock | most for lock | text | lock for which threads slept longest in this row
        lock_time | for this lock | time | how long they slept for that lock
        released_by | released by | text | who released it after most of that time; timeout, signal
    """,
    "outliers": """
        outlier | stands out | text | whether the part stands out from the others
        deviation | | fixed | interquartile ranges beyond the nearer quartile of all parts
        measure | | text | measure that lies farthest from the quartiles
        select | select it with | text | options that select the part
        n | waits | count | waits that began in the part
        waiting | | number | threads that waited for a CPU, on average
        blocked | | number | threads in uninterruptible sleep, on average
        throttled_frac | throttled share | share | share of CPU time that quotas closed to groups
        irq_frac | interrupt share | share | share of CPU time in interrupts
    """,
    "requests": """
        n | requests | count | requests that were answered
        which | | text | all requests, or the slowest 1 % of them
        running | | time | time on a CPU
        waiting | | time | time waited for a CPU
        interrupted | | time | time in interrupts while the thread ran or waited for a CPU
        locks | | time | time slept in futex calls: locks, conditions, semaphores
        io | I/O | time | time slept in calls that read, write, poll or sync, or for a page
        timer | | time | time slept on a timer
        other_sleep | other sleep | time | time slept in other calls, or stopped
        backlog | | time | time from the read until the thread that answered was done with others
        n_at_least | at least | count | requests whose data was there before the thread asked for it
        n_censored | unfinished | count | requests without an answer when last observed
        n_excluded | excluded | count | requests during which events were lost
        at_least | at least | text | whether the data was there before the thread asked for it
        fd | | id | file descriptor that was read
        by_comm | answered by | text | name of the thread that wrote the answer
    """,
    "wakers": "n | wakeups | count | wakeups and forks that started a wait",
    "starvation": "n | episodes | count | episodes of starvation",
    "migrations": "n | migrations | count | migrations",
    "ping_pong": "n | bounces | count | migrations to the other CPU and back",
    "cpu_returns": "n | returns | count | runs of threads that had run before",
    "run_lengths": "n | runs | count | runs that were measured",
    "wake_chain": """
        hops       |              | count | wakeups from the first thread to this one
        chain_wait | waits so far | time | waits for a CPU after the wakeups that led here, summed
    """,
    "critical_path": "n | steps | count | steps of the path",
    "jain_index": "n | threads | count | threads that something was due to",
    "ministat": """
        set        |        | text   | name of the set of numbers
        n          | values | count  | numbers in the set
        min        |        | number | smallest
        max        |        | number | largest
        mean       |        | number | mean
        median     |        | number | median
        stddev     |        | number | standard deviation
        different  |        | text   | whether the difference is significant
        margin     |        | number | half of the confidence interval
        margin_frac |       | share  | margin as a share of the reference
        margin_frac_old | old margin | share | margin as a share of the reference, in old ministat
        pooled_stddev | pooled stddev | number | pooled standard deviation
        difference |        | number | difference from the reference
        difference_frac | change | share | difference as a share of the reference
        t          |        | number | Student's t
        df         |        | count  | degrees of freedom
    """,
    "interactivity": "n | sleeps | count | sleeps that were counted",
    "interactivity_series": "interactive | | text | whether it counts as interactive from then on",
    "preemption_loss": "n | preemptions | count | preemptions",
    "work_conservation": """
        n       | stretches      | count | stretches of waiting that were avoidable in part
        waited | avoidable wait | time | time waited here while a usable CPU was idle
    """,
    "queue_depth_summary": """
        n       | waits | count  | waits on the queue
        mean    |       | number | mean depth
        max     |       | count  | largest depth
        p       |       | count  | depth that is not exceeded for this share of the time
    """,
    "queue_depth": """
        waiting |       | count  | threads that waited
        running |       | count  | threads that ran
        depth   |       | count  | threads that wanted the CPU
    """,
    "queue_depth every": """
        waiting |       | number | mean number of threads that waited
        depth   |       | number | mean number of threads that wanted the CPU
    """,
    "dispatch_queues": """
        queue      |       | text  | dispatch queue of sched_ext, or where a thread is in none
        n          | stays | count | stays in the queue
        total_frac | share | share | share of the time of all rows
    """,
    "dispatch_depth": """
        queue   | | text  | dispatch queue of sched_ext
        depth   | | count | threads in the queue
    """,
    "dispatch_slices": """
        n          | runs         | count | runs that were seen from start to end
        given      | slices given | time  | sum of the slices with which threads were dispatched
        ran        |              | time  | CPU time of these runs
        ran_frac   | of the given | share | CPU time of these runs as a share of the slices
        n_whole    | whole slices | count | runs as long as their slice
        vtime      | virtual time | time  | how far virtual times advanced
        vtime_due  | due          | time  | CPU time by weight meanwhile
        vtime_ratio | advanced/due | fixed | how far virtual times advanced over CPU time by weight
        limit      |              | time  | how long the watchdog lets a thread wait
        limit_frac | of the limit | share | longest wait as a share of the watchdog's limit
    """,
    "kicks": """
        kick       |             | text  | what the scheduler asked for
        n          | kicks       | count | kicks
        n_to_idle  | idle CPUs   | count | kicks of CPUs that idled
        n_to_busy  | busy CPUs   | count | kicks of CPUs that ran a thread
        n_unknown  | unknown     | count | kicks of CPUs of which events may be missing
        n_again    | again       | count | kicks of CPUs that were kicked since their last switch
        n_switched | switched    | count | kicks that a switch of the CPU followed
    """,
    "queue_load": "n | reports | count | queue lengths that the kernel reported",
    "agreement": "n | migrations | count | migrations",
    "slowdown": """
        cpu     | CPU time  | time   | time on a CPU
        ratio   | wall/CPU  | number | elapsed time over CPU time
    """,
    "fairness": "ratio | received/due | fixed | CPU time received over CPU time due",
    "migration_matrix": """
        n        | migrations | count | migrations
        wake     | | count | placed by a wakeup
        balance  | | count | moved by balancing
        fork     | | count | placed at fork
        exec     | | count | placed at exec
        affinity | | count | moved because the mask forbids the previous CPU
        unknown  | | count | of unknown cause
    """,
    "starvation_timeline": """
        waited | | text | whether the waiting thread was on the CPU's queue
        held_back | while it waited there | time | CPU time while the thread waited for that CPU
        drawn | on all CPUs drawn | time | time that ran on any CPU drawn in the figure
    """,
    "migration_list": "waited | | text | whether the thread waited anyway",
    "compare": """
        measure    |            | text  | what is compared
        a          |            | right | value of the first setting
        b          |            | right | value of the other setting
        difference |            | right | b - a
        difference_frac | change | right | difference as a share of a
        change     |            | right | difference as a share of a
        noise | ± noise | right | smallest difference that these runs can distinguish from chance
        verdict    |            | text  | more, less, within noise or untested
        better     |            | text  | setting that is better
        hedges_g   |            | right | effect size, Hedges' g
        g          | effect g   | right | effect size, Hedges' g
        cliffs_delta | Cliff's delta | number | effect size, Cliff's delta
        p          |            | number | probability of such a difference by chance
        p_adjusted | adjusted p | right | the same, adjusted for the number of comparisons
        p_mann_whitney | rank p | number | the same, by ranks (Mann-Whitney)
        runs_a     | runs       | count | runs of the first setting
        runs_b     | runs       | count | runs of the other setting
        threads_a  | threads    | number | threads per run of the first setting
        threads_b  | threads    | number | threads per run of the other setting
        n_a        | values     | count | values of the first setting
        n_b        | values     | count | values of the other setting
        n_censored_a | unfinished | count | waits unfinished, of the first setting
        n_censored_b | unfinished | count | waits unfinished, of the other setting
        n_excluded_a | excluded | count | waits excluded, of the first setting
        n_excluded_b | excluded | count | waits excluded, of the other setting
    """,
    "whatif": """
        alive         |          | count | largest number of threads of the service alive at once
        cpu_time      | CPU time | time | CPU time
        cpu_time_low  | least CPU time | time | lowest CPU time over the replays
        cpu_time_high | most CPU time  | time | highest CPU time over the replays
        throughput    | rounds/s | fixed | rounds per second of the loop of what runs for a time
        throughput_low | least rounds/s | fixed | lowest of it over the replays
        throughput_high | most rounds/s | fixed | highest of it over the replays
        throughput_verdict | rounds/s are | text | good, doubtful or refused: rounds per second
        waiting_low   | least waiting  | time | lowest time waited for a CPU over the replays
        waiting_high  | most waiting   | time | highest time waited for a CPU over the replays
        wait_p50_low  | lowest p50     | time | lowest median of the waits over the replays
        wait_p50_high | highest p50 | time | highest median of the waits over the replays
        wait_p99_low  | lowest p99     | time | lowest 99th percentile of the waits over the replays
        wait_p99_high | highest p99 | time | highest 99th percentile of the waits over the replays
        cpu_time_alike_low | least CPU time alike | time | least of it while others take as much
        cpu_time_alike_high | most CPU time alike | time | most of it while others take as much
        throughput_alike_low | least rounds/s alike | fixed | least of it while others take as much
        throughput_alike_high | most rounds/s alike | fixed | most of it while others take as much
        waiting_alike_low | least waiting alike | time | least of it while others take as much
        waiting_alike_high | most waiting alike | time | most of it while others take as much
        wait_p50_alike_low | least p50 alike | time | lowest median wait while others take as much
        wait_p50_alike_high | most p50 alike | time | highest median wait while others take as much
        wait_p99_alike_low | least p99 alike | time | lowest p99 of waits while others take as much
        wait_p99_alike_high | most p99 alike | time | highest p99 of waits while others take as much
        replay_error | replay off by | fixed | factor between recording and unchanged replay
        p99_error    | p99 off by | fixed | the same factor of the 99th percentile of the waits
        verdict       |          | text | good, doubtful or refused; good if every figure is
        cpu_time_verdict | CPU time is | text | the same of the CPU time
        n_waits_verdict  | waits are   | text | the same of the number of waits
        waiting_verdict  | waiting is  | text | the same of the time waited for a CPU
        wait_p50_verdict | p50 is      | text | the same of the median wait
        wait_p99_verdict | p99 is      | text | the same of the 99th percentile of the waits
        cause          | cause        | text  | the cause of waits that the change is about
        cause_recorded | recorded share | share | its share of the waiting in the recording
        cause_replayed | replayed share | share | its share of the waiting in the unchanged replay
        cause_error    | share off by | fixed | factor between the two shares
        tested_on      | tested on    | count | waits recorded while the cause did not act
        tested_mean    | mean there   | time  | mean of those waits
        tested_p99     | p99 there    | time  | 99th percentile of those waits
        test_error     | mean over predicted | fixed | how much longer these are than predicted
        test_p99_error | p99 over predicted  | fixed | the same of the 99th percentile
        others_share   | others' share | share | CPU time of programs outside of the workload
        crowd          | more at once | fixed | how many times as many threads alive at once
        model          | model | text | the same policy, or another version or family
        unclear        | unclear | text | what the recording does not show, and doubles a figure
    """,
    "fidelity_of_runs": """
        measure     |             | text   | what is compared
        unit        |             | text   | ns, count, threads or share
        real        |             | right  | median over the recordings
        real_low    | least real  | number | smallest over the recordings
        real_high   | most real   | number | largest over the recordings
        replay      |             | right  | median over the replays
        replay_low  | least replay | number | smallest over the recordings' replays
        replay_high | most replay | number | largest over the recordings' replays
        ratio       | replay/real | fixed  | replay divided by real
        inside      |             | text   | whether the replay is within the recordings' range
        runs        |             | count  | recordings
    """,
    "simulate": "ended | | text | why the simulation ended",
    "capacity": "total | | count | how much was examined",
    "tunables": "kind | | text | type of the value",
    "formats": """
        format  | | text  | name of the format
        about   | | text  | what it is, and how it is recognised
        options | | text  | decoder options: names, and what they do
    """,
    "fleet": """
        trace    | | text | name of the trace
        path     | | text | where the trace is: a path or an address
        host     | | text | name of the host
        os       | | text | system of the host
        release  | | text | kernel release
        machine  | | text | architecture
        scheduler | | text | scheduler of the kernel
        preempt  | preemption | text | preemption model of the kernel
        hz       | | number | ticks per second
        events   | | count | events of the scheduler
        n        | waits | count | waits that were measured
        waiting_frac | waiting share | share | time waited as a share of the time of all CPUs
        level    | | text | level of the most serious check
        verdict  | | text | what the checks say; for hosts and groups, whether they differ
        error    | | text | why there is no summary of the trace
        measure  | | text | what is compared
        n_traces | traces | count | traces that are compared
        n_hosts  | hosts | count | hosts that are compared
        ratio    | | fixed | value divided by that of the median host or of the reference group
        lower    | | fixed | lower end of the 95 % interval of the ratio
        upper    | | fixed | upper end of the 95 % interval of the ratio
        score    | | number | distance from the median host in robust standard deviations
        column   | | text | column by which the hosts are grouped
        group    | | text | value of that column
        against  | | text | group it is compared with
        shown    | value | right | geometric mean of the measure
        label    | | text | label given to the trace; the column is label_NAME
        setting  | | text | recorded setting of the scheduler; the column is setting_NAME
    """,
    "info": """
        event   | | text  | kind of event
        all     | | count | events of all CPUs
    """,
    "validate": """
        column   | | text | name of the column
        type     | | text | its type
        null     | | text | whether it may be null
        says     | meaning | text | what it means
        table    | | text | name of the table
        found    | | text | what was found
        expected | | text | what was expected
        hint     | | text | what to do
    """,
}


@cache
def meanings() -> dict[str, Meaning]:
    """All of them, by name or `question.name`; parsed on first use, since help needs none."""
    tables = (THREADS, PLACES, INSTANTS, TIMES, COUNTS, FRACTIONS, NUMBERS, WORDS)
    declared = [meaning for table in tables for meaning in _parsed(table)]
    declared += [m for question, table in QUESTIONS.items() for m in _parsed(table, question)]
    return {f"{m.question}.{m.name}".lstrip("."): m for m in declared}


_QUANTILE = re.compile(r"p\d+(\.\d+)?")


def is_quantile(name: str) -> bool:
    """Whether a column is a quantile by its name.

    >>> is_quantile("p99.9"), is_quantile("pid")
    (True, False)
    """
    return _QUANTILE.fullmatch(name) is not None


def meaning(name: str, question: str = "") -> Meaning | None:
    """What a column of the answer to `question` means; None for a name that is not declared.

    >>> meaning("n", "latency").heading, meaning("n_censored").heading, meaning("p99").unit
    ('waits', 'unfinished', 'ns')
    """
    found = meanings().get(f"{question}.{name}") or meanings().get(name)
    if found is None and name.startswith(("label_", "setting_")):
        # Named by the user and by the kernel: as many as there are.
        of = meanings()[f"fleet.{name.partition('_')[0]}"]
        return Meaning(name, name.partition("_")[2], of.kind, of.doc, of.question)
    if found is None and is_quantile(name):
        found = meanings().get(f"{question}.p")
        kind: Kind = found.kind if found else "time"
        return Meaning(name, name, kind, f"{name[1:]}th percentile", question)
    if found is None and name.endswith("_high"):
        low = meaning(name.removesuffix("_high"), question)
        if low is not None:
            heading, doc = f"{low.heading or low.name} at most", f"upper bound: {low.doc}"
            return Meaning(name, heading, low.kind, doc, low.question)
    return found


def counts(name: str) -> bool:
    """Whether a column is a count in every answer that has it.

    >>> counts("alive"), counts("n_waits"), counts("waiting")
    (True, True, False)
    """
    kinds = {one.kind for one in meanings().values() if one.name == name}
    return kinds == {"count"}
