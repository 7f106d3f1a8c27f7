//! What Linux's real-time threads leave to others.
use super::*;
use crate::workload::{NO_CHANNEL, Reservation, Tid};

/// A real-time hog r and a fair one h, which begins before or with it.
fn against_hog(begins: i64) -> Build {
    let mut b = Build::new(1);
    let r = b.add("r", &[run(1000)]);
    (r.class, r.rt_prio, r.start) = (Class::Fifo, 50, Some(begins * MS));
    b.add("h", &[run(1000)]).start = Some(0);
    b
}

#[test]
fn real_time_threads_stop_at_the_tick_after_their_runtime() {
    // 20 ms of 100, ticks of 1 ms. At the tick at 20 r has had no more than 20 ms, at 21 it has.
    // At 100 the timer takes 20 off these 21: r may have 19 more, that is up to the tick at 120.
    // cpu0  r 0-21  h 21-100  r 100-120  h 120-200  r 200-220
    let set = [
        ("rt_runtime", "20ms"),
        ("rt_period", "100ms"),
        ("hz", "1000"),
    ];
    for policy in ["cfs-2.6.32", "cfs-5.10", "cfs-6.1", "eevdf-6.6"] {
        let ran = on_one_cpu(&against_hog(0), policy, &set, 1000);
        let want = [
            "cpu0 r 0..21",
            "cpu0 h 21..100",
            "cpu0 r 100..120",
            "cpu0 h 120..200",
            "cpu0 r 200..220",
        ];
        assert_eq!(first(&ran, 5), want, "{policy}");
    }
}

#[test]
fn a_cpu_idles_if_it_has_only_real_time_threads_and_they_may_not_run() {
    // The same without h; of two CPUs the other one stays idle, too: r waits where it is.
    let set = [
        ("rt_runtime", "20ms"),
        ("rt_period", "100ms"),
        ("hz", "1000"),
    ];
    let mut b = Build::new(2);
    let r = b.add("r", &[run(45)]);
    (r.class, r.rt_prio) = (Class::Fifo, 50);
    for policy in ["cfs-5.10", "cfs-6.1", "eevdf-6.6"] {
        let machine = Machine::flat(2).unwrap();
        let ran = simulate(&b.load, machine, policy, &set, None).unwrap();
        let want = ["cpu0 r 0..21", "cpu0 r 100..120", "cpu0 r 200..204"];
        assert_eq!(ran.drawn(), want, "{policy}");
    }
}

#[test]
fn a_cpu_borrows_runtime_of_others_up_to_5_9() {
    // 95 ms of 100. At the tick at 96 r has had more; the other CPU has 95 left, of which the
    // half is more than the 5 that r may use at most: it has all of the 100, and so it stays.
    let set = [
        ("rt_runtime", "95ms"),
        ("rt_period", "100ms"),
        ("hz", "1000"),
    ];
    let mut b = against_hog(0);
    b.mask(2, &[0]);
    for t in &mut b.load.threads {
        t.mask = 1;
    }
    let at = |policy: &str| {
        let machine = Machine::flat(2).unwrap();
        simulate(&b.load, machine, policy, &set, Some(300 * MS)).unwrap()
    };
    assert_eq!(shares(&at("cfs-2.6.32"), 2)[1], 0.0);
    assert_eq!(
        first(&at("cfs-5.10"), 2),
        ["cpu0 r 0..96", "cpu0 h 96..100"]
    );
}

#[test]
fn fair_threads_are_served_at_zero_laxity() {
    // 20 ms of 100. The server's period begins at 0 with h; from 80 on h needs all of it. At 100
    // it has had its 20 ms, and the next period begins: r has 80 of it.
    // cpu0  r 0-80  h 80-100  r 100-180  h 180-200
    let set = [
        ("fair_server_runtime", "20ms"),
        ("fair_server_period", "100ms"),
        ("hz", "1000"),
    ];
    for policy in ["eevdf-6.12", "eevdf-6.17", "eevdf-6.18", "eevdf-7.2"] {
        let ran = on_one_cpu(&against_hog(0), policy, &set, 1000);
        let want = [
            "cpu0 r 0..80",
            "cpu0 h 80..100",
            "cpu0 r 100..180",
            "cpu0 h 180..200",
        ];
        assert_eq!(first(&ran, 4), want, "{policy}");
    }
}

#[test]
fn what_fair_threads_ran_of_themselves_counts() {
    // h has 10 ms before r comes, so that 10 of its 20 are left: zero laxity is at 90. Since then
    // more than its part is left of the period, it gets a new one, with 20 ms, to 110.
    let set = [
        ("fair_server_runtime", "20ms"),
        ("fair_server_period", "100ms"),
        ("hz", "1000"),
    ];
    let ran = on_one_cpu(&against_hog(10), "eevdf-6.18", &set, 1000);
    let want = [
        "cpu0 h 0..10",
        "cpu0 r 10..90",
        "cpu0 h 90..110",
        "cpu0 r 110..190",
    ];
    assert_eq!(first(&ran, 4), want);
}

#[test]
fn a_served_cpu_without_fair_threads_goes_back_to_real_time_ones() {
    // h runs 1 ms and sleeps for 2, so that it is gone at 81 and the server is off; it has 19 of
    // its 20 ms left in a period that ends at 180, and more than its part of that at 83, where it
    // is cut to (180 - 83) * 20 / 100. It serves at once.
    let set = [
        ("fair_server_runtime", "20ms"),
        ("fair_server_period", "100ms"),
        ("hz", "1000"),
    ];
    let mut b = Build::new(1);
    let r = b.add("r", &[run(1000)]);
    (r.class, r.rt_prio) = (Class::Fifo, 50);
    b.add("h", &repeat(vec![run(1), sleep(2)]));
    let ran = on_one_cpu(&b, "eevdf-6.18", &set, 1000);
    let want = [
        "cpu0 r 0..80",
        "cpu0 h 80..81",
        "cpu0 r 81..83",
        "cpu0 h 83..84",
        "cpu0 r 84..86",
    ];
    assert_eq!(first(&ran, 5), want);
}

/// A thread of SCHED_DEADLINE that always wants to run, with a runtime, deadline and period, ms.
fn reserved(b: &mut Build, name: &str, given: [i64; 3]) {
    let d = b.add(name, &[run(1000)]);
    (d.class, d.rt_prio) = (Class::Deadline, 99);
    let [runtime, deadline, period] = given.map(|ms| ms * MS);
    d.reservation = Some(Reservation {
        runtime,
        deadline,
        period,
    });
}

const LINUX: [&str; 4] = ["cfs-5.10", "cfs-6.1", "eevdf-6.6", "eevdf-6.18"];

#[test]
fn deadline_threads_have_their_runtime_of_each_period_before_real_time_ones() {
    // d has 3 ms of 10, with ticks of 1 ms; r is SCHED_FIFO 99 and takes the rest.
    // cpu0  d 0-3  r 3-10  d 10-13  r 13-20
    let mut b = Build::new(1);
    reserved(&mut b, "d", [3, 10, 10]);
    let r = b.add("r", &[run(1000)]);
    (r.class, r.rt_prio) = (Class::Fifo, 99);
    for policy in LINUX {
        let ran = on_one_cpu(&b, policy, &[("hz", "1000")], 100);
        let want = [
            "cpu0 d 0..3",
            "cpu0 r 3..10",
            "cpu0 d 10..13",
            "cpu0 r 13..20",
        ];
        assert_eq!(first(&ran, 4), want, "{policy}");
    }
}

#[test]
fn of_deadline_threads_the_earliest_runs() {
    // a has 4 ms of 10, b 6 of 20. Deadlines 10 and 20: a, then b from 4 to 10, when a has a new
    // deadline, 20, and b waits for its next period. The CPU is idle from 14 to 20.
    let mut b = Build::new(1);
    reserved(&mut b, "a", [4, 10, 10]);
    reserved(&mut b, "b", [6, 20, 20]);
    for policy in LINUX {
        let ran = on_one_cpu(&b, policy, &[("hz", "1000")], 100);
        let want = [
            "cpu0 a 0..4",
            "cpu0 b 4..10",
            "cpu0 a 10..14",
            "cpu0 a 20..24",
            "cpu0 b 24..30",
        ];
        assert_eq!(first(&ran, 5), want, "{policy}");
    }
}

#[test]
fn a_deadline_thread_that_wakes_early_goes_on_with_what_it_may() {
    // d runs 1 ms of its 4 in 10, and sleeps to 3: 3 of 4 left and 7 of 10 are more than its part,
    // so that a new period begins at 3, with 4 ms to 7 and a deadline of 13. With a deadline of 8
    // in 10 it has instead 5 of these 8 times its 4: 2.5 ms, seen at the tick at 6, until the
    // period ends at 10.
    let with = |deadline: i64| {
        let mut b = Build::new(1);
        reserved(&mut b, "d", [4, deadline, 10]);
        let steps = [run(1), sleep(2), run(1000)];
        let (from, len) = (b.load.steps.len() as u32, steps.len() as u32);
        b.load.steps.extend(steps);
        (b.load.threads[0].first, b.load.threads[0].len) = (from, len);
        first(&on_one_cpu(&b, "eevdf-6.18", &[("hz", "1000")], 100), 3)
    };
    assert_eq!(with(10), ["cpu0 d 0..1", "cpu0 d 3..7", "cpu0 d 13..17"]);
    assert_eq!(with(8), ["cpu0 d 0..1", "cpu0 d 3..6", "cpu0 d 10..14"]);
}

#[test]
fn a_deadline_thread_that_yields_waits_for_its_period() {
    let mut b = Build::new(1);
    reserved(&mut b, "d", [4, 10, 10]);
    let steps = [run(1), Step::Yield, run(1000)];
    let (from, len) = (b.load.steps.len() as u32, steps.len() as u32);
    b.load.steps.extend(steps);
    (b.load.threads[0].first, b.load.threads[0].len) = (from, len);
    b.add("h", &[run(1000)]);
    for policy in LINUX {
        let ran = on_one_cpu(&b, policy, &[("hz", "1000")], 100);
        let want = ["cpu0 d 0..1", "cpu0 h 1..10", "cpu0 d 10..14"];
        assert_eq!(first(&ran, 3), want, "{policy}");
    }
}

#[test]
fn a_deadline_thread_of_unknown_runtime_runs_before_real_time_ones() {
    let mut b = Build::new(1);
    let r = b.add("r", &[run(5)]);
    (r.class, r.rt_prio) = (Class::Fifo, 99);
    let d = b.add("d", &[run(3)]);
    (d.class, d.rt_prio, d.start) = (Class::Deadline, 99, Some(2 * MS));
    for policy in LINUX {
        let ran = on_one_cpu(&b, policy, &[("hz", "1000")], 100);
        assert_eq!(
            ran.drawn(),
            ["cpu0 r 0..2", "cpu0 d 2..5", "cpu0 r 5..8"],
            "{policy}"
        );
    }
}

#[test]
fn wakes_of_one_call_are_not_cut_short_by_those_who_wake() {
    // w wakes three real-time threads that sleep; a wake takes 2 ms, and between two of them it
    // runs for 1 ms, as in one call, or for 2 ms, as in several. In the first case it loses the CPU
    // when it has raised the last of them, whose 2 ms it pays for later.
    // cpu0  w 0-7  a 7-8  b 8-9  c 9-10  w 10-13
    // cpu0  w 0-1  a 1-2  w 2-6  b 6-7  w 7-11  c 11-12  w 12-15
    let wake = |to| Step::Signal {
        to,
        pair: NO_CHANNEL,
        cost: 2 * MS as u32,
        sync: false,
        meet: false,
    };
    let drawn = |between: i64, policy: &str| {
        let mut b = Build::new(1);
        for (t, name) in ["a", "b", "c"].into_iter().enumerate() {
            let asleep = Step::WaitFor {
                channel: t as u32,
                count: 1,
                cost: 0,
                disk: false,
            };
            let thread = b.add(name, &[asleep, run(1)]);
            (thread.class, thread.rt_prio) = (Class::Fifo, 50);
            b.inbox(t as Tid);
        }
        let gap = run(between);
        b.add("w", &[run(1), wake(0), gap, wake(1), gap, wake(2), run(1)]);
        let mut rows = on_one_cpu(&b, policy, &[], 1000).drawn();
        rows.retain(|row| !row.ends_with(" 0..0"));
        rows
    };
    for policy in ["cfs-2.6.32", "cfs-6.1", "eevdf-6.12", "bfs", "ule-14"] {
        let want = [
            "cpu0 w 0..7",
            "cpu0 a 7..8",
            "cpu0 b 8..9",
            "cpu0 c 9..10",
            "cpu0 w 10..13",
        ];
        assert_eq!(drawn(1, policy), want, "{policy}");
        let want = [
            "cpu0 w 0..1",
            "cpu0 a 1..2",
            "cpu0 w 2..6",
            "cpu0 b 6..7",
            "cpu0 w 7..11",
            "cpu0 c 11..12",
            "cpu0 w 12..15",
        ];
        assert_eq!(drawn(2, policy), want, "{policy}");
    }
}
