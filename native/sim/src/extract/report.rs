//! The extraction report: how often each rule was used, and what it came to.

/// How often each rule was used.
#[derive(Debug, Clone, Default)]
pub struct Report {
    pub switches: u64,
    pub involuntary_dropped: u64,
    pub yields: u64,
    pub wakes_by_threads: u64,
    pub meetings: u64,
    pub waits_for_anyone: u64,
    /// Pipes and sockets found, and those whose reads and writes do not add up.
    pub pipes: u64,
    pub pipes_left_out: u64,
    /// Writes into the former, and those of them without a wake.
    pub messages: u64,
    pub messages_unnoticed: u64,
    /// Mutexes found in futex calls, and those left out.
    pub mutexes: u64,
    pub mutexes_left_out: u64,
    /// How often a thread had one of the former, how often it waited for it, and how often neither
    /// it nor another thread did.
    pub holds: u64,
    pub holds_waited_for: u64,
    pub holds_unnoticed: u64,
    /// Queues that pools of threads serve, jobs put into them, and words that several threads
    /// waited for and that are none.
    pub queues: u64,
    pub queues_left_out: u64,
    pub jobs: u64,
    /// Wakes whose job another thread took first, and jobs put while no thread slept at the queue.
    pub wakes_in_vain: u64,
    pub jobs_unnoticed: u64,
    /// Waits of a condition's signaller for the threads that it woke before, and steps whose other
    /// end was in a futile turn: both are left out.
    pub waits_to_signal: u64,
    pub signals_in_vain: u64,
    /// Barriers, and how often a thread came to one.
    pub barriers: u64,
    pub barrier_waits: u64,
    pub wakes_external: u64,
    /// Threads with a periodic timer, and the sleeps that it ended.
    pub periodic_threads: u64,
    pub periodic_waits: u64,
    /// Instants of such timers that had passed when their threads came to them.
    pub instants_missed: u64,
    /// Threads whose timer counts from where they read the clock.
    pub clocks_read: u64,
    /// Threads whose timers count clock ticks, and the sleeps that those ended.
    pub ticking_threads: u64,
    pub ticking_sleeps: u64,
    pub wakes_unknown_waker: u64,
    pub wakes_before_sleep: u64,
    pub wakes_spurious: u64,
    pub wakes_missing: u64,
    /// Threads that made a call without having been seen to come onto a CPU.
    pub comes_missing: u64,
    pub forks: u64,
    pub exits: u64,
    pub chain_breaks: u64,
    pub gaps: u64,
    pub priority_changes: u64,
    pub running_at_begin: u64,
    pub cut_at_end: u64,
    pub cpu_time: i64,
    pub cpu_time_lost: i64,
    /// CPU time of raising wakes and of going to sleep, needed only if one happens.
    pub wake_time: i64,
    pub sleep_time: i64,
    /// What a sleep costs its thread at least.
    pub sleep_cost: i64,
    /// What each coming onto a CPU costs, and what that was in all: in no `run`.
    pub switch_cost: i64,
    pub switch_time: i64,
}

impl Report {
    pub fn entries(&self) -> Vec<(&'static str, i64)> {
        let n = |v: u64| v as i64;
        vec![
            ("switches", n(self.switches)),
            ("involuntary_dropped", n(self.involuntary_dropped)),
            ("yields", n(self.yields)),
            ("wakes_by_threads", n(self.wakes_by_threads)),
            ("meetings", n(self.meetings)),
            ("waits_for_anyone", n(self.waits_for_anyone)),
            ("pipes", n(self.pipes)),
            ("pipes_left_out", n(self.pipes_left_out)),
            ("messages", n(self.messages)),
            ("messages_unnoticed", n(self.messages_unnoticed)),
            ("mutexes", n(self.mutexes)),
            ("mutexes_left_out", n(self.mutexes_left_out)),
            ("holds", n(self.holds)),
            ("holds_waited_for", n(self.holds_waited_for)),
            ("holds_unnoticed", n(self.holds_unnoticed)),
            ("queues", n(self.queues)),
            ("queues_left_out", n(self.queues_left_out)),
            ("jobs", n(self.jobs)),
            ("wakes_in_vain", n(self.wakes_in_vain)),
            ("jobs_unnoticed", n(self.jobs_unnoticed)),
            ("waits_to_signal", n(self.waits_to_signal)),
            ("signals_in_vain", n(self.signals_in_vain)),
            ("barriers", n(self.barriers)),
            ("barrier_waits", n(self.barrier_waits)),
            ("wakes_external", n(self.wakes_external)),
            ("periodic_threads", n(self.periodic_threads)),
            ("periodic_waits", n(self.periodic_waits)),
            ("instants_missed", n(self.instants_missed)),
            ("clocks_read", n(self.clocks_read)),
            ("ticking_threads", n(self.ticking_threads)),
            ("ticking_sleeps", n(self.ticking_sleeps)),
            ("wakes_unknown_waker", n(self.wakes_unknown_waker)),
            ("wakes_before_sleep", n(self.wakes_before_sleep)),
            ("wakes_spurious", n(self.wakes_spurious)),
            ("wakes_missing", n(self.wakes_missing)),
            ("comes_missing", n(self.comes_missing)),
            ("forks", n(self.forks)),
            ("exits", n(self.exits)),
            ("chain_breaks", n(self.chain_breaks)),
            ("gaps", n(self.gaps)),
            ("priority_changes", n(self.priority_changes)),
            ("running_at_begin", n(self.running_at_begin)),
            ("cut_at_end", n(self.cut_at_end)),
            ("cpu_time", self.cpu_time),
            ("cpu_time_lost", self.cpu_time_lost),
            ("wake_time", self.wake_time),
            ("sleep_time", self.sleep_time),
            ("sleep_cost", self.sleep_cost),
            ("switch_cost", self.switch_cost),
            ("switch_time", self.switch_time),
        ]
    }
}
