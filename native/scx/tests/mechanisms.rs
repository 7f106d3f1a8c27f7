//! Timers, iterators of DSQs, maps that are no tables, control groups: schedulers of our own that
//! need them, against schedules worked out by hand.
mod world;

use schedscope_sim::machine::Machine;
use schedscope_sim::workload::{Class, GroupMove, GroupSpec, Step};
use world::{Build, MS, Ran, drawn, object, run, sleep, under};

fn on_one_cpu(name: &str, b: &Build, set: &[(&str, &str)], until: Option<i64>) -> Ran {
    let ran = under(
        &object(name),
        &b.load,
        Machine::flat(1).unwrap(),
        set,
        until,
    );
    let ran = ran.unwrap();
    assert_eq!(ran.outcome.as_ref().unwrap().ended, None, "{name}");
    ran
}

fn two_layers() -> Build {
    let mut b = Build::new(1);
    b.add("a", &[run(25)]);
    b.add("b", &[run(20)]);
    b
}

#[test]
fn a_timer_gives_the_cpu_to_two_layers_in_turn() {
    // The timer fires at 10, 20, 30, 40 ms and takes the CPU away from the layer that has it.
    let b = two_layers();
    let ran = on_one_cpu("layers", &b, &[], None);
    let want = [
        "cpu0 a 0..10",
        "cpu0 b 10..20",
        "cpu0 a 20..30",
        "cpu0 b 30..40",
        "cpu0 a 40..45",
    ];
    assert_eq!(drawn(&ran, &b.load), want);
}

#[test]
fn a_program_of_the_schedulers_own_half_runs_before_it_if_a_setting_says_so() {
    let b = two_layers();
    let ran = on_one_cpu("layers", &b, &[("set_turn", "50/16")], None);
    let want = [
        "cpu0 a 0..16",
        "cpu0 b 16..32",
        "cpu0 a 32..41",
        "cpu0 b 41..45",
    ];
    assert_eq!(drawn(&ran, &b.load), want);
    for (numbers, what) in [("0", "answers -22"), ("soon", "set_turn=soon")] {
        let machine = Machine::flat(1).unwrap();
        let set = [("set_turn", numbers)];
        let said = under(&object("layers"), &b.load, machine, &set, None);
        let said = said.map(|_| ()).unwrap_err();
        assert!(said.contains(what), "{said}");
    }
}

#[test]
fn an_iterator_takes_the_last_of_a_dsq_first() {
    let mut b = Build::new(1);
    for (name, at) in [("a", 0), ("b", 1), ("c", 2), ("d", 3)] {
        b.add(name, &[run(5)]).start = Some(at * MS);
    }
    let want = [
        "cpu0 a 0..5",
        "cpu0 d 5..10",
        "cpu0 c 10..15",
        "cpu0 b 15..20",
    ];
    // From the end of the DSQ, or by moving all to another one in order of a virtual time.
    for by_vtime in ["0", "1"] {
        let ran = on_one_cpu("moves", &b, &[("by_vtime", by_vtime)], None);
        assert_eq!(drawn(&ran, &b.load), want, "by_vtime={by_vtime}");
    }
}

#[test]
fn a_tree_gives_the_highest_first() {
    let mut b = Build::new(1);
    for (name, at) in [("a", 0), ("b", 1), ("d", 2), ("c", 2)] {
        b.add(name, &[run(5)]).start = Some(at * MS);
    }
    let ran = on_one_cpu("trees", &b, &[], None);
    let want = [
        "cpu0 a 0..5",
        "cpu0 c 5..10",
        "cpu0 d 10..15",
        "cpu0 b 15..20",
    ];
    assert_eq!(drawn(&ran, &b.load), want);
}

#[test]
fn a_list_in_an_arena_gives_the_cpu_in_turn() {
    let mut b = Build::new(1);
    for name in ["a", "b", "c"] {
        b.add(name, &[run(6)]);
    }
    let ran = on_one_cpu("arena", &b, &[("slice_ns", "1ms")], None);
    let want = [
        "cpu0 a 0..4",
        "cpu0 b 4..8",
        "cpu0 c 8..12",
        "cpu0 a 12..14",
        "cpu0 b 14..16",
        "cpu0 c 16..18",
    ];
    assert_eq!(drawn(&ran, &b.load), want);
}

#[test]
fn the_arena_library_is_told_the_machine() {
    // Two cores of two threads and one cache: all, the node, the cache, 2 cores, 4 CPUs.
    let b = two_layers();
    let run = |set: &[(&str, &str)]| {
        let machine = Machine::grid(1, 2, 2).unwrap();
        under(&object("arena"), &b.load, machine, set, None).map(|_| ())
    };
    run(&[("want_nodes", "9"), ("want_cpus", "20")]).unwrap();
    // The bytes of a thread's data are those of a struct, or a number.
    let said = run(&[
        ("want_nodes", "9"),
        ("want_cpus", "20"),
        ("arena_task", "16"),
    ]);
    let said = said.unwrap_err();
    assert!(said.contains("ops.init answers -1"), "{said}");
}

#[test]
fn a_scheduler_hears_of_other_cpus_before_it_has_the_thread_back() {
    // While the thread runs, sleeps and waits; the object ends in an error if it has not heard.
    let mut b = Build::new(2);
    let first = b.mask(2, &[0]);
    let second = b.mask(2, &[1]);
    let to = |of, mask| Step::SetAffinity { of, mask };
    b.add("a", &[run(3), to(0, second), run(3), sleep(2), run(2)]);
    b.add(
        "b",
        &[
            run(1),
            to(2, first),
            to(0, first),
            run(20),
            to(0, 0),
            run(9),
        ],
    );
    b.add("c", &[run(9), sleep(30), run(9)]);
    for c in ["d", "e"] {
        b.add(c, &[run(30)]);
    }
    let machine = Machine::flat(2).unwrap();
    let ran = under(&object("arena"), &b.load, machine, &[], None).unwrap();
    assert_eq!(ran.outcome.unwrap().ended, None);
}

#[test]
fn settings_reach_members_and_elements() {
    let mut b = Build::new(1);
    b.add("a", &[run(5)]);
    on_one_cpu(
        "arena",
        &b,
        &[("kept.words.2", "7"), ("ops.timeout_ms", "900")],
        None,
    );
    let machine = Machine::flat(1).unwrap();
    let set = [("kept.words.3", "7")];
    let said = under(&object("arena"), &b.load, machine, &set, None);
    let said = said.map(|_| ()).unwrap_err();
    assert!(said.contains("\"3\" is no part"), "{said}");
}

#[test]
fn an_array_alone_in_its_section_is_made_longer_by_its_setting() {
    let mut b = Build::new(1);
    b.add("a", &[run(5)]);
    let set = [("nr_limits", "3"), ("limits", "1,2,7")];
    on_one_cpu("moves", &b, &set, None);
    let machine = Machine::flat(1).unwrap();
    let said = under(&object("moves"), &b.load, machine, &set[..1], None);
    let said = said.map(|_| ()).unwrap_err();
    assert!(
        said.contains("of .data.limits, which has 4 bytes"),
        "{said}"
    );
}

#[test]
fn a_thread_waiting_behind_a_real_time_thread_is_enqueued_again() {
    // cpu0  a 0-2  rt 2-5  a 5-...: a was put at the head of the local queue when it lost the CPU,
    // and reenqueue_local gives it back to ops.enqueue, behind b. Without it a would go on at 5.
    let mut b = Build::new(1);
    b.add("a", &[run(6)]);
    b.add("b", &[run(3)]).start = Some(MS);
    let rt = b.add("rt", &[run(3)]);
    (rt.class, rt.rt_prio, rt.start) = (Class::Fifo, 50, Some(2 * MS));
    let ran = on_one_cpu("moves", &b, &[("by_vtime", "1")], None);
    let want = ["cpu0 a 0..2", "cpu0 rt 2..5", "cpu0 b 5..8", "cpu0 a 8..12"];
    assert_eq!(drawn(&ran, &b.load), want);
}

fn two_groups() -> Build {
    let mut b = Build::new(1);
    let group = |name: &str, shares| GroupSpec {
        name: name.into(),
        parent: None,
        shares,
        quota: None,
    };
    b.load.groups = vec![group("/light", 1024), group("/heavy", 3072)];
    for (name, of) in [("a", 0), ("b", 1), ("c", 0), ("d", 1), ("e", 0), ("f", 1)] {
        b.add(name, &[run(1200)]).group = Some(of);
    }
    b
}

/// Of these threads between two instants, in ms.
fn ran_between(ran: &Ran, b: &Build, names: &str, from: f64, until: f64) -> f64 {
    let rows = drawn(ran, &b.load);
    let of = rows.iter().filter_map(|row| {
        let words: Vec<&str> = row.split(' ').collect();
        let (start, end) = words[2].split_once("..")?;
        let (start, end): (f64, f64) = (start.parse().ok()?, end.parse().ok()?);
        let long = (end.min(until) - start.max(from)).max(0.0);
        names.contains(words[1]).then_some(long)
    });
    of.sum()
}

#[test]
fn groups_share_a_cpu_by_their_weights() {
    let b = two_groups();
    let ran = on_one_cpu("groups", &b, &[], None);
    let heavy = ran_between(&ran, &b, "bdf", 0.0, 1200.0);
    // Three quarters, to a slice of each.
    assert!((888.0..=912.0).contains(&heavy), "{heavy} ms of 1200");
}

#[test]
fn a_thread_has_the_weight_of_the_group_that_it_moves_to() {
    // Five threads of weight 3 and one of 1: 3 of 16 parts. From 1.2 s on 1 of 14.
    let mut b = two_groups();
    for t in [0, 2] {
        b.load.threads[t].group = Some(1);
    }
    b.load.moves.push(GroupMove {
        at: 1200 * MS,
        thread: 0,
        group: Some(0),
    });
    let ran = on_one_cpu("groups", &b, &[], None);
    let before = ran_between(&ran, &b, "a", 0.0, 1200.0);
    let after = ran_between(&ran, &b, "a", 1200.0, 2400.0);
    assert!((217.0..=233.0).contains(&before), "{before} of 225 ms");
    assert!((78.0..=94.0).contains(&after), "{after} of 86 ms");
}

#[test]
fn a_scheduler_of_groups_finds_the_root_where_a_recording_has_none() {
    let mut b = Build::new(1);
    b.add("a", &[run(5), sleep(1), run(5)]);
    b.add("b", &[run(5)]);
    on_one_cpu("groups", &b, &[], None);
}
