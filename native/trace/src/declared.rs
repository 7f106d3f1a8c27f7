//! What a decoder declares matters: for fields of `SourceInfo` a stream whose numbers change with
//! it, and how. `all_threads` and `origin` are tested beside the pipeline; `counts_cpus`,
//! `unfinished` and `uncounted`, which act on whole files, in `tests/decode` and
//! `tests/reconstruct`.

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, RecordBatch};

use crate::model::event::{
    CpuInfo, Event, EventSink, KnownProcess, KnownThread, Origin, Party, SourceEnd, SourceInfo,
    State, WakeKind,
};
use crate::pipeline::{Pipeline, Summary};
use crate::store::MemoryStore;
use crate::summary::TraceJson;

/// One CPU of Linux; every test changes what it is about.
fn linux() -> SourceInfo {
    SourceInfo {
        ncpu: 1,
        has_waking: true,
        has_enqueued: true,
        linux_priorities: true,
        all_threads: true,
        ..SourceInfo::default()
    }
}

fn thread(tid: u32) -> Party {
    Party {
        tid,
        prio: Some(120),
        ..Party::default()
    }
}

fn switch(ts: i64, cpu: u16, prev: u32, prev_state: State, next: u32) -> Event {
    Event::Switch {
        ts,
        cpu,
        prev: thread(prev),
        prev_state,
        preempted: None,
        next: thread(next),
    }
}

fn wakeup(ts: i64, kind: WakeKind, tid: u32) -> Event {
    Event::Wakeup {
        ts,
        cpu: 0,
        kind,
        waker: None,
        current: None,
        who: thread(tid),
        target_cpu: Some(0),
    }
}

struct Tables {
    store: MemoryStore,
    summary: Summary,
    json: serde_json::Value,
}

fn tables(info: &SourceInfo, events: &[Event]) -> Tables {
    let mut store = MemoryStore::default();
    let mut progress = |_, _| Ok(());
    let mut pipeline = Pipeline::new(info, &mut store, &mut progress);
    for event in events {
        pipeline.event(event).expect("a possible event");
    }
    let summary = pipeline.finish(info).expect("a possible trace");
    let path = std::path::Path::new("hand-made");
    let end = SourceEnd::default();
    let json = TraceJson::new(path, "test", info, &end, &summary, &[], false);
    let json = serde_json::from_str(&json.text(&Default::default())).expect("JSON");
    Tables {
        store,
        summary,
        json,
    }
}

impl Tables {
    fn batches(&self, table: &str) -> &[RecordBatch] {
        self.store.tables.get(table).map_or(&[], Vec::as_slice)
    }

    fn rows(&self, table: &str) -> usize {
        self.batches(table).iter().map(RecordBatch::num_rows).sum()
    }

    /// How many rows of a table have something in this column.
    fn known(&self, table: &str, column: &str) -> usize {
        let of = |batch: &RecordBatch| {
            let array = batch.column_by_name(column).expect("a column");
            array.len() - array.null_count()
        };
        self.batches(table).iter().map(of).sum()
    }

    /// How long waits lasted, in ns, at least.
    fn waits(&self) -> Vec<i64> {
        let of = |batch: &RecordBatch| {
            let array = batch.column_by_name("wait").expect("a column").clone();
            let array = array.as_primitive::<Int64Type>();
            array.iter().flatten().collect::<Vec<_>>()
        };
        self.batches("waits").iter().flat_map(of).collect()
    }

    /// ns of a CPU: unknown, running, idle.
    fn time(&self, cpu: usize) -> (i64, i64, i64) {
        let reconstruction = self
            .summary
            .reconstruction
            .as_ref()
            .expect("not only facts");
        let cpu = &reconstruction.cpus()[cpu];
        (cpu.unknown, cpu.running, cpu.idle)
    }
}

/// Thread 7 is woken at 10, queued at 12, runs from 20 to 50.
fn one_wait() -> Vec<Event> {
    vec![
        switch(0, 0, 9, State::Sleeping, 0),
        wakeup(10, WakeKind::Waking, 7),
        wakeup(12, WakeKind::Enqueued, 7),
        switch(20, 0, 0, State::Runnable, 7),
        switch(50, 0, 7, State::Sleeping, 0),
    ]
}

#[test]
fn ncpu_bounds_the_cpus_whose_events_count() {
    let mut events = one_wait();
    events.push(switch(60, 1, 0, State::Runnable, 8));
    let two = SourceInfo { ncpu: 2, ..linux() };
    assert_eq!(tables(&linux(), &events).rows("switches"), 3);
    assert_eq!(tables(&two, &events).rows("switches"), 4);
    let three = SourceInfo { ncpu: 3, ..linux() };
    assert_eq!(tables(&three, &events).time(2), (60, 0, 0));
}

#[test]
fn cpus_known_to_the_source_have_their_topology() {
    let row = CpuInfo {
        cpu: 0,
        core: Some(4),
        ..CpuInfo::default()
    };
    let told = SourceInfo {
        cpus: vec![row],
        ..linux()
    };
    assert_eq!(tables(&linux(), &one_wait()).known("cpus", "core"), 0);
    assert_eq!(tables(&told, &one_wait()).known("cpus", "core"), 1);
}

#[test]
fn known_threads_and_processes_give_threads_their_affinity_and_group() {
    let told = SourceInfo {
        threads: vec![KnownThread {
            tid: 7,
            pid: Some(7),
            affinity: Some("0".to_string()),
            ..KnownThread::default()
        }],
        processes: vec![KnownProcess {
            pid: 7,
            cgroup: Some("/web".into()),
            ..KnownProcess::default()
        }],
        ..linux()
    };
    let (without, with) = (tables(&linux(), &one_wait()), tables(&told, &one_wait()));
    for column in ["affinity", "cgroup"] {
        assert_eq!(without.known("threads", column), 0, "{column}");
        assert_eq!(with.known("threads", column), 1, "{column}");
    }
}

#[test]
fn a_cpu_that_idles_at_first_has_no_unknown_time_before_its_first_event() {
    let begins = SourceInfo {
        window: (Some(-100), None),
        ..linux()
    };
    let idle = SourceInfo {
        idle_at_first: vec![0],
        ..begins.clone()
    };
    let events = &one_wait()[1..];
    assert_eq!(tables(&begins, events).time(0).0, 120);
    assert_eq!(tables(&idle, events).time(0), (0, 30, 120));
}

#[test]
fn the_window_that_the_source_states_is_the_trace() {
    let told = SourceInfo {
        window: (Some(-5), Some(100)),
        ..linux()
    };
    assert_eq!(tables(&linux(), &one_wait()).summary.window, Some((0, 50)));
    let told = tables(&told, &one_wait());
    assert_eq!(told.summary.window, Some((-5, 100)));
    assert_eq!(told.time(0), (5, 30, 70));
}

#[test]
fn a_wakeup_without_its_waking_has_no_start_where_wakings_are_recorded() {
    let mut events = one_wait();
    events.remove(1);
    let enqueued_only = SourceInfo {
        has_waking: false,
        ..linux()
    };
    assert_eq!(tables(&enqueued_only, &events).waits(), [8]);
    assert!(tables(&linux(), &events).waits().is_empty());
    let json = |info| tables(info, &events).json["has_waking"].clone();
    assert_eq!(
        (json(&linux()), json(&enqueued_only)),
        (true.into(), false.into())
    );
}

#[test]
fn classes_follow_from_priorities_of_linux_only() {
    let other = SourceInfo {
        linux_priorities: false,
        has_waking: false,
        origin: Origin::OtherSystem,
        ..linux()
    };
    assert!(classes(&linux()).contains("fair"), "{}", classes(&linux()));
    assert!(!classes(&other).contains("fair"), "{}", classes(&other));
}

/// The column `sched_class` of `threads`.
fn classes(info: &SourceInfo) -> String {
    let tables = tables(info, &one_wait());
    let column = |batch: &RecordBatch| {
        let array = batch
            .column_by_name("sched_class")
            .expect("a column")
            .clone();
        let names = array.as_dictionary::<arrow_array::types::UInt8Type>();
        let texts = names.values().as_string::<i32>();
        let of = |key: u8| texts.value(key.into()).to_string();
        names.keys().iter().flatten().map(of).collect::<Vec<_>>()
    };
    let found: Vec<String> = tables.batches("threads").iter().flat_map(column).collect();
    found.join(" ")
}

#[test]
fn remarks_and_the_sources_own_facts_are_in_the_metadata() {
    let told = SourceInfo {
        remarks: vec!["two buffers were too small".to_string()],
        about: r#"{"release": "6.17.0", "ncpu": 64}"#.to_string(),
        ..linux()
    };
    let json = tables(&told, &one_wait()).json;
    assert_eq!(json["warnings"][0], "two buffers were too small");
    assert_eq!(
        (&json["release"], &json["ncpu"]),
        (&"6.17.0".into(), &1.into())
    );
}

#[test]
fn a_filter_that_the_source_states_makes_us_look_for_the_threads_that_were_recorded() {
    let filtered = SourceInfo {
        filtered: true,
        all_threads: false,
        ..linux()
    };
    // Of 7 and 8 every switch is there; those between are missing.
    let events: Vec<Event> = (0..40)
        .flat_map(|turn| {
            let at = turn * 100;
            [
                switch(at, 0, 20, State::Runnable, 7),
                switch(at + 10, 0, 7, State::Sleeping, 21),
                switch(at + 50, 0, 22, State::Runnable, 8),
                switch(at + 60, 0, 8, State::Sleeping, 23),
            ]
        })
        .collect();
    let suspected = |info| tables(info, &events).summary.suspicion.is_some();
    assert!(suspected(&filtered));
    assert!(!suspected(&linux()));
}
