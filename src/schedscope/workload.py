"""Workloads: generate, extract from a trace, write by hand, read and save.

import schedscope as ss
ss.simulate(ss.workload.hogs(17), policy="rr", cpus=16)

A workload is a set of threads, each with a program of steps, in two tables. On disk it is a
folder `NAME.workload/` with `steps.parquet` and `workload.json` (threads, machine, its source),
which other simulators can read. Thread numbers are row numbers of `threads`.

`threads`

* `name` (String): shown as `comm`
* `tid`, `pid` (Int64, null): shown in the output; made up if null
* `class` (Enum): `deadline`, which runs before `interrupt` (FreeBSD's interrupt threads), `fifo`,
  `rr` (real time) and `kernel` (FreeBSD's kernel threads), which run before `fair` and `batch`,
  which run before `idle`
* `nice` (Int8): -20..19, of `fair` and `batch`
* `rt_prio` (UInt8): 1..99, higher is better, of `fifo` and `rr`
* `cpus` (String, null): CPUs it may use, as in `0-3,8`; null: all
* `start` (Int64, null): ns when it becomes runnable; null: another thread forks it
* `asleep` (Boolean): it is in its first step, a sleep or wait, when it appears, and takes no CPU
  for it
* `cpu` (UInt16, null): where it is at the start
* `program` (UInt32): number of the program whose steps it takes; threads may share a program if
  no thread waits for them by name
* `group` (String, null): the control group that it is in at the start; null: none
* `slice` (Int64, null): ns: a slice of its own, 100 us to 100 ms, used by EEVDF from 6.12 on;
  null: that of the policy
* `dl_runtime`, `dl_deadline`, `dl_period` (Int64, null): ns: what a thread of class `deadline`
  gets; null: not known, no limit
* `past_used`, `past_run`, `past_sleep`, `past_charged` (Int64, null): ns: what it had done before
  its start, of which FreeBSD's schedulers make its first priority: CPU time in the last 10 s; CPU
  time and sleep that ULE's score counts, ended children included; CPU time that 4BSD has charged
  and not forgotten; null: nothing
* `exits_after` (Int64, null): ns of CPU time after which it is on its way out of the kernel, where
  schedulers of sched_ext have no say in it any more; null: it has none

`steps`, the rows of a program together and in order

* `run` (`ns`): use that much CPU time (of a full-speed CPU)
* `sleep` (`ns`, `disk`): sleep; `disk`: uninterruptible
* `sleep_ticks` (`ns`): sleep until the last clock tick within `ns`, or else the next one, as on a
  timer that counts ticks; where the policy has no ticks, for `ns`
* `wait_until` (`ns`): sleep until that instant; nothing if it has passed
* `read_clock` (`ns`): read the clock: the instants of later `wait_until` of the thread move by as
  much as it is later than `ns`, or earlier
* `wait_for` (`thread`, `count`, `disk`, `ns`): wait for the `count`-th signal that `thread` sends
  to this one; `thread` null: from any thread; `count` null: one not yet taken; `ns`: CPU time of
  going to sleep and waking up, used only if it sleeps
* `signal` (`thread`, `sync`, `meet`, `ns`): signal a thread, waking it if it waits for this;
  `sync`: a sleep follows at once; `meet`: first sleep until that thread waits for this signal,
  unless it sleeps for the same of this one; `ns`: CPU time that raising the wake takes, used only
  if it wakes
* `put` (`pipe`, `count`, `sync`, `ns`): put `count` into a pipe, first sleeping while that does
  not fit; wakes a reader that sleeps there, at the cost of `ns`, as for `signal`
* `take` (`pipe`, `count`, `disk`, `ns`): take `count` out of a pipe, sleeping whenever it is
  empty; `ns` as for `wait_for`
* `lock` (`mutex`, `ns`): take a mutex, sleeping while another thread has it; `ns` as for
  `wait_for`, each time it sleeps
* `unlock` (`mutex`, `ns`): release it and wake the first that sleeps for it, which tries again: a
  thread that comes meanwhile takes it; `ns` as for `signal`
* `cond_wait` (`condition`, `mutex`, `ns`): release the mutex, sleep until the condition is
  signalled, and take the mutex again
* `cond_signal`, `cond_broadcast` (`condition`, `ns`): wake the first thread that waits on the
  condition, or all; nothing if none does
* `barrier` (`barrier`, `count`, `ns`): sleep until `count` threads have come to the barrier, this
  one among them
* `post` (`queue`, `job`, `ns`): put a job into a queue and wake the first thread that sleeps
  there; `job`: a program that no thread has of its own, without `wait_for` and `repeat`; null:
  nothing to do; `ns` as for `signal`
* `serve` (`queue`, `ns`): take the first job out of a queue, sleeping while there is none, and go
  through its steps before the next; a thread that is woken looks again, as one that was awake may
  have taken the job; `ns` as for `wait_for`
* `fork` (`thread`): start a thread whose `start` is null
* `yield`: give up the CPU, stay runnable
* `set_priority` (`class`, `nice`, `rt_prio`, `thread`): of `thread`, or of the thread itself if
  null
* `set_affinity` (`cpus`, `thread`): the same for the allowed CPUs
* `repeat` (`step`, `count`): go back to that step of the program `count` more times; null: without
  end
* `park`: sleep to the end of the simulation
* `exit`: end; so does the end of the program

Mutexes, conditions, barriers and queues have no table: each kind is numbered from 0.

`pipes`, in `workload.json`: pipes, sockets, queues, anything that holds a bounded count; `pipe`
is the row number

* `capacity` (Int64, null): what it holds; null: any amount
* `low` (Int64): writers that sleep because it is full are all woken by a `take` that leaves no
  more than this
* `filled` (Int64): what is in it at the beginning
* `page` (Int64, null): bytes: of a Linux pipe, whose content lies in pages of this size; one
  writer is woken when a page of a full pipe is empty, and `low` has no effect; null: no pages, as
  in a socket

`groups`, in `workload.json`: control groups, between which CFS and EEVDF share CPU time before
they do between threads; other policies ignore them, and say so

* `path` (String): as in `/web/batch`; its parent is the listed group with the longest path above
  it
* `weight` (Float64): as in `cpu.weight`: 100 is as much as a thread of nice 0 next to it
* `quota` (Int64, null): ns of CPU time that all its threads together may use in a period; null:
  all they get
* `period`, `phase` (Int64): ns; periods begin at `phase` plus multiples of `period`

`moves`, in `workload.json`: threads that go from one group to another, whatever they do at that
time

* `at` (Int64): the instant, ns
* `thread` (UInt32): its row in `threads`
* `group` (String, null): the group that it is in from then on; null: none
"""

from schedscope.simulator.recorded.extract import extract
from schedscope.simulator.runs.rtapp import from_rtapp, to_rtapp
from schedscope.simulator.workloads.builder import Builder, Program
from schedscope.simulator.workloads.generators import (
    cascade,
    generate,
    hackbench,
    hogs,
    locks,
    make,
    nice_hogs,
    periodic,
    ping_pong,
    pool,
    requests,
    spinners,
    web,
)
from schedscope.simulator.workloads.workload import Workload, is_workload, read_workload

__all__ = [
    "Builder",
    "Program",
    "Workload",
    "cascade",
    "extract",
    "from_rtapp",
    "generate",
    "hackbench",
    "hogs",
    "is_workload",
    "locks",
    "make",
    "nice_hogs",
    "periodic",
    "ping_pong",
    "pool",
    "read_workload",
    "requests",
    "spinners",
    "to_rtapp",
    "web",
]
