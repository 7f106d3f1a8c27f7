//! Objects as policies: a schedule worked out by hand, and that of the hand-written model.
mod world;

use schedscope_sim::machine::Machine;
use schedscope_sim::workload::Class;
use world::{Build, drawn, object, random, run, sleep, under, under_model};

#[test]
fn fifo_gives_20_ms_each_in_the_order_of_arrival() {
    // Ticks at 4, 8, ... ms: a slice that begins at one is over at the one after 20 ms.
    // cpu0  a 0-24  b 24-44  c 44-54  a 54-75, alone: the kernel gives it slice after slice.
    let mut b = Build::new(1);
    b.add("a", &[run(45)]);
    b.add("b", &[run(20)]);
    b.add("c", &[run(10)]);
    let ran = under(
        &object("fifo"),
        &b.load,
        Machine::flat(1).unwrap(),
        &[],
        None,
    )
    .unwrap();
    let want = [
        "cpu0 a 0..24",
        "cpu0 b 24..44",
        "cpu0 c 44..54",
        "cpu0 a 54..75",
    ];
    assert_eq!(drawn(&ran, &b.load), want);
    assert_eq!(ran.outcome.unwrap().ended, None);
}

#[test]
fn fifo_keeps_two_cpus_busy_and_wakes_behind_the_queue() {
    // Without ops.select_cpu the kernel sends a thread to an idle CPU, else it is enqueued where it
    // was. s wakes at 16, finds none and waits for the tick at which a has used up its 20 ms.
    // cpu0  a 0-24             s 24-25  a 25-31
    // cpu1  b 0-6  s 6-7  c 7-27
    let mut b = Build::new(2);
    b.add("a", &[run(30)]).cpu = Some(0);
    b.add("b", &[run(6)]).cpu = Some(1);
    b.add("s", &[run(1), sleep(9), run(1)]);
    b.add("c", &[run(20)]);
    let machine = Machine::flat(2).unwrap();
    let ran = under(&object("fifo"), &b.load, machine, &[], None).unwrap();
    let want = [
        "cpu0 a 0..24",
        "cpu1 b 0..6",
        "cpu1 s 6..7",
        "cpu1 c 7..27",
        "cpu0 s 24..25",
        "cpu0 a 25..31",
    ];
    assert_eq!(drawn(&ran, &b.load), want);
}

#[test]
fn a_setting_of_rodata_changes_the_slice() {
    let mut b = Build::new(1);
    b.add("a", &[run(8)]);
    b.add("b", &[run(8)]);
    let machine = Machine::flat(1).unwrap();
    let ran = under(
        &object("fifo"),
        &b.load,
        machine,
        &[("slice_ns", "3ms")],
        None,
    )
    .unwrap();
    let want = [
        "cpu0 a 0..4",
        "cpu0 b 4..8",
        "cpu0 a 8..12",
        "cpu0 b 12..16",
    ];
    assert_eq!(drawn(&ran, &b.load), want);
}

#[test]
fn a_thread_that_is_woken_when_it_appears_is_enqueued_as_woken() {
    // As threads do that wake as a recording begins: a and b come while first runs.
    for (asleep, next) in [(true, "b"), (false, "a")] {
        let mut b = Build::new(1);
        b.add("first", &[run(2)]);
        b.add("a", &[run(2)]).start = Some(world::MS);
        let spec = b.add("b", &[sleep(0), run(2)]);
        (spec.start, spec.asleep) = (Some(world::MS), asleep);
        let machine = Machine::flat(1).unwrap();
        let ran = under(&object("waking"), &b.load, machine, &[], None).unwrap();
        assert_eq!(drawn(&ran, &b.load)[1], format!("cpu0 {next} 2..4"));
    }
}

#[test]
fn an_exiting_thread_stays_on_its_cpu_without_being_enqueued() {
    // At 24 ms b is taken from the queue; a, with 4 ms left, waits on the CPU if it exits, else
    // behind c.
    let early = [
        "cpu0 a 0..24",
        "cpu0 b 24..28",
        "cpu0 a 28..32",
        "cpu0 c 32..36",
    ];
    let late = [
        "cpu0 a 0..24",
        "cpu0 b 24..28",
        "cpu0 c 28..32",
        "cpu0 a 32..36",
    ];
    for (exits_after, rows) in [(Some(23), early), (Some(25), late), (None, late)] {
        let mut b = Build::new(1);
        b.add("a", &[run(28)]).exits_after = exits_after.map(|ms| ms * world::MS);
        b.add("b", &[run(4)]);
        b.add("c", &[run(4)]);
        let machine = Machine::flat(1).unwrap();
        let ran = under(&object("vtime"), &b.load, machine, &[], None).unwrap();
        assert_eq!(drawn(&ran, &b.load), rows, "{exits_after:?}");
    }
}

/// Both, until a row differs.
fn compare(machine: &Machine, seed: u64, priorities: bool) -> usize {
    let load = random(seed, machine.ncpu(), priorities);
    let until = Some(10_000 * world::MS);
    let model = under_model("scx-simple", &load, machine.clone(), until);
    let ran = under(&object("vtime"), &load, machine.clone(), &[], until).unwrap();
    for (at, (a, b)) in model.rows.iter().zip(&ran.rows).enumerate() {
        assert_eq!(a, b, "row {at} of seed {seed} on {} CPUs", machine.ncpu());
    }
    assert_eq!(model.rows.len(), ran.rows.len(), "seed {seed}");
    assert_eq!(ran.outcome.unwrap().ended, None);
    ran.rows.len()
}

#[test]
fn the_vtime_object_decides_as_the_model_scx_simple_does() {
    let machines = [
        Machine::flat(1).unwrap(),
        Machine::flat(2).unwrap(),
        Machine::flat(4).unwrap(),
        Machine::grid(1, 2, 2).unwrap(),
        Machine::grid(2, 2, 2).unwrap(),
    ];
    let mut rows = 0;
    for machine in &machines {
        for seed in 0..60 {
            rows += compare(machine, seed, seed % 2 == 1);
        }
    }
    assert!(rows > 10_000, "{rows}");
}

#[test]
fn steal_takes_from_other_cpus_and_counts_it() {
    // Four threads of CPU 0's queue: CPU 1, which runs dry at 5, takes one of them.
    let mut b = Build::new(2);
    for name in ["a", "b", "c", "d"] {
        b.add(name, &[run(20), sleep(3), run(20)]);
    }
    let ran = under(
        &object("steal"),
        &b.load,
        Machine::flat(2).unwrap(),
        &[],
        None,
    )
    .unwrap();
    assert_eq!(ran.outcome.as_ref().unwrap().ended, None);
    // 160 ms of work on two CPUs that never idle while a thread waits.
    assert!(ran.end < 90 * world::MS, "{}", ran.end);
}

#[test]
fn real_time_threads_run_above_the_scheduler() {
    // cpu0  a 0-5  rt 5-8  a 8-20: it goes on with what is left of its slice
    let mut b = Build::new(1);
    b.add("a", &[run(17)]);
    let rt = b.add("rt", &[run(3)]);
    (rt.class, rt.rt_prio, rt.start) = (Class::Fifo, 50, Some(5 * world::MS));
    for name in ["fifo", "vtime", "steal"] {
        let machine = Machine::flat(1).unwrap();
        let ran = under(&object(name), &b.load, machine, &[], None).unwrap();
        let want = ["cpu0 a 0..5", "cpu0 rt 5..8", "cpu0 a 8..20"];
        assert_eq!(drawn(&ran, &b.load), want, "{name}");
    }
}

#[test]
fn the_same_input_gives_the_same_rows() {
    let load = random(7, 4, true);
    let machine = Machine::grid(1, 2, 2).unwrap();
    let once = || {
        under(&object("steal"), &load, machine.clone(), &[], None)
            .unwrap()
            .rows
    };
    assert_eq!(once(), once());
}
