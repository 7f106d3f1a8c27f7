//! EEVDF and sched_ext's example.
use super::*;

const ALL: [&str; 5] = [
    "eevdf-6.6",
    "eevdf-6.12",
    "eevdf-6.17",
    "eevdf-6.18",
    "eevdf-7.2",
];

/// Requests of 3 ms, ticks of 1 ms.
const ROUND: [(&str, &str); 2] = [("base_slice", "3ms"), ("hz", "1000")];

#[test]
fn eevdf_equal_threads_take_turns_of_one_request() {
    // At 3: a has vruntime 3, average 1.5: not eligible, b is.
    // At 6: both at 3 and eligible, deadlines 6 and 6: the one that waits.
    // cpu0  a 0-3  b 3-6  a 6-9  b 9-12
    for policy in ALL {
        let ran = on_one_cpu(&hogs(&[0, 0], 6), policy, &ROUND, 1000);
        let want = ["cpu0 a 0..3", "cpu0 b 3..6", "cpu0 a 6..9", "cpu0 b 9..12"];
        assert_eq!(ran.drawn(), want, "{policy}");
    }
}

#[test]
fn eevdf_preempts_by_the_clock_of_the_wakeup_unless_lazily() {
    // Requests of 3 ms, ticks of 4. s (nice -5) wakes at 20.5, when h has run 18.5 and its request
    // ends at 21; that of s ends at 18.5 + 3 * 1024 / 3121 = 19.5. s runs from 21 on: h has run 18.5
    // by the clock of the wakeup, and 19 by that of the switch.
    // cpu0  s 0-1  h 2-21  s 21-22
    let mut b = Build::new(1);
    let nap = Step::Sleep {
        ns: 39 * MS / 2,
        disk: false,
    };
    b.add("s", &[run(1), nap, run(1)]).nice = -5;
    b.add("h", &[run(50)]).start = Some(2 * MS);
    for (policy, lazy, of_h) in [
        ("eevdf-6.12", "off", 18.5e6),
        ("eevdf-7.2", "off", 18.5e6),
        ("eevdf-7.2", "on", 19e6),
    ] {
        let mut machine = Machine::flat(1).unwrap();
        machine.costs.preempt_ns = MS / 2;
        let set = [ROUND[0], ("hz", "250"), ("lazy_preemption", lazy)];
        let ran = simulate(&b.load, machine, policy, &set, Some(50 * MS)).unwrap();
        let want = ["cpu0 s 0..1", "cpu0 h 2..21", "cpu0 s 21..22"];
        assert_eq!(first(&ran, 3), want, "{policy} {lazy}");
        let of_it = series(&ran, 0, 1);
        let last = of_it.iter().rfind(|(at, _)| *at <= 21.0);
        let begin = of_it[0].1;
        assert_eq!(last.map(|(_, v)| v - begin), Some(of_h), "{policy} {lazy}");
    }
}

#[test]
fn eevdf_requests_end_at_ticks() {
    // 3 ms at 250 Hz: the first tick after it is at 4.
    let set = [("base_slice", "3ms"), ("hz", "250")];
    let ran = on_one_cpu(&hogs(&[0, 0], 8), "eevdf-6.17", &set, 1000);
    assert_eq!(first(&ran, 2), ["cpu0 a 0..4", "cpu0 b 4..8"]);
}

#[test]
fn eevdf_of_7_2_ends_the_requests_of_who_takes_the_cpu_at_their_deadlines() {
    // 3 ms; ticks of 10. b is nice 5: 335 of 1024, so that its 3 ms of running are 9.17 of virtual
    // time, which is its deadline. At 3: a has 3, the average is 3 * 1024 / 1359 = 2.26: b runs, to
    // 6. At 6: a has 3, b 9.17, the average is 4.52: a, to 9 and a deadline of 6. At 9: a has 6,
    // the average is 6.78: still eligible, deadlines 9 and 18.3: a again, and as there was no
    // switch, no timer is set. At the tick of 10, a has 7, the average is 7.5. At the tick of 20: a
    // has 17, the average is 15.1: b, to 23.
    let set = [("base_slice", "3ms"), ("hz", "100")];
    let ran = on_one_cpu(&hogs(&[0, 5], 40), "eevdf-7.2", &set, 1000);
    let want = [
        "cpu0 a 0..3",
        "cpu0 b 3..6",
        "cpu0 a 6..20",
        "cpu0 b 20..23",
        "cpu0 a 23..26",
    ];
    assert_eq!(first(&ran, 5), want);

    // s, of nice 5, comes at 9.5, where a has 6.5 and the average is 7.2: the timer is set to the
    // deadline of a, at 12. Then a has 9, b 9.17, s 7.2, and the average is 8.7.
    let mut b = hogs(&[0, 5], 40);
    let s = b.add("s", &[run(1)]);
    (s.start, s.nice) = (Some(19 * MS / 2), 5);
    let ran = on_one_cpu(&b, "eevdf-7.2", &set, 1000);
    assert_eq!(first(&ran, 4)[2..], ["cpu0 a 6..12", "cpu0 s 12..13"]);
}

#[test]
fn eevdf_of_7_2_leaves_its_timer_set_until_nobody_runs() {
    // Requests of 3 ms, ticks of 10. The timer is set for a, to 3. b takes the CPU at 1, alone: the
    // timer stays as it is, also when c comes. At 3, b has 2 and c 1: b is not eligible, although
    // its request goes to 4.
    let set = [
        ("base_slice", "3ms"),
        ("hz", "100"),
        ("wakeup_preemption", "off"),
    ];
    let mut b = Build::new(1);
    b.add("a", &[run(1)]);
    b.add("b", &[run(30)]);
    b.add("c", &[run(30)]).start = Some(2 * MS);
    let ran = on_one_cpu(&b, "eevdf-7.2", &set, 1000);
    let want = ["cpu0 a 0..1", "cpu0 b 1..3", "cpu0 c 3..6"];
    assert_eq!(first(&ran, 3), want);
}

#[test]
fn eevdf_who_goes_on_after_a_request_is_not_protected() {
    // The same with ticks of 1 ms and no timer; roundings let b go on for a tick. a is picked again
    // at 10, 13 and 16. At 17 it has 13, the average is 12.8: b, in the middle of a's request.
    let set = [ROUND[0], ROUND[1], ("hrtick", "off")];
    for policy in ["eevdf-6.12", "eevdf-6.17", "eevdf-6.18", "eevdf-7.2"] {
        let ran = on_one_cpu(&hogs(&[0, 5], 40), policy, &set, 1000);
        let want = ["cpu0 a 0..3", "cpu0 b 3..7", "cpu0 a 7..17"];
        assert_eq!(first(&ran, 3), want, "{policy}");
    }
}

#[test]
fn eevdf_of_7_2_sets_its_timer_when_somebody_comes() {
    // h runs alone from 0, its requests ending at 4 (seen by the tick), and 4 + 3. s comes
    // at 5, eligible as it was never charged, and with the deadline 4 + 3 / 2 or later: the
    // timer is set to h's deadline at 7, and not earlier.
    let set = [
        ("base_slice", "3ms"),
        ("hz", "250"),
        ("wakeup_preemption", "off"),
    ];
    let mut b = Build::new(1);
    b.add("h", &[run(30)]);
    b.add("s", &[run(1)]).start = Some(5 * MS);
    let at = |policy: &str| {
        let ran = on_one_cpu(&b, policy, &set, 1000);
        first(&ran, 2)[1].clone()
    };
    assert_eq!(at("eevdf-7.2"), "cpu0 s 7..8");
    assert_eq!(at("eevdf-6.18"), "cpu0 s 8..9");
}

#[test]
fn eevdf_a_thread_of_a_shorter_slice_preempts() {
    // h runs from 0 with a request of 8 ms. s comes at 2, where the average is 2: it has vruntime
    // 2, is eligible, and as a new thread has half a request: of 8 in 6.6, where threads have no
    // slices of their own, else of its 1, that is a deadline of 2.5.
    let mut b = Build::new(1);
    b.add("h", &[run(30)]);
    let s = b.add("s", &[run(1)]);
    (s.start, s.slice) = (Some(2 * MS), Some(MS));
    let at = |policy: &str, short: &'static str| {
        let mut set = vec![("base_slice", "8ms"), ("hz", "1000")];
        if !short.is_empty() {
            set.push(("preempt_short", short));
        }
        let ran = on_one_cpu(&b, policy, &set, 1000);
        first(&ran, 2)[1].clone()
    };
    // h is protected until its request is done, at 8.
    assert_eq!(at("eevdf-6.6", ""), "cpu0 s 8..9");
    assert_eq!(at("eevdf-6.12", "off"), "cpu0 s 8..9");
    // The shorter slice ends that at once.
    assert_eq!(at("eevdf-6.12", ""), "cpu0 s 2..3");
    assert_eq!(at("eevdf-6.17", ""), "cpu0 s 2..3");
    // From 6.17 on h is protected for the shortest slice that waits, to 3; then it has had 3
    // where the average is 2.5.
    assert_eq!(at("eevdf-6.17", "off"), "cpu0 s 3..4");
}

#[test]
fn eevdf_a_thread_that_is_owed_time_preempts_when_it_wakes() {
    // s leaves at 4 with vruntime 1 where the average is 2: lag 1. At 9 it is
    // placed so that its lag is 1 again: h, at 8, is then not eligible.
    // cpu0  h 0-3  s 3-4  h 4-9  s 9-10  h 10-..
    for policy in ALL {
        let mut b = Build::new(1);
        b.add("h", &[run(20)]);
        b.add("s", &[run(1), sleep(5), run(1)]);
        let ran = on_one_cpu(&b, policy, &ROUND, 1000);
        let want = [
            "cpu0 h 0..3",
            "cpu0 s 3..4",
            "cpu0 h 4..9",
            "cpu0 s 9..10",
            "cpu0 h 10..22",
        ];
        assert_eq!(ran.drawn(), want, "{policy}");
    }
}

#[test]
fn eevdf_a_debtor_that_sleeps_long_is_forgiven_from_6_12_on() {
    // d runs 0-2 and sleeps with lag -1. 6.12 keeps it queued: h works the debt
    // off (average 2 at 4), so at 12 it comes back with lag 0. In 6.6 it still
    // has -1, for however long it slept.
    let mut b = Build::new(1);
    b.add("d", &[run(2), sleep(10), run(1)]);
    b.add("h", &[run(30)]);
    let lag_at_wake = |policy: &str| {
        let ran = on_one_cpu(&b, policy, &ROUND, 1000);
        let lag = series(&ran, 2, 0);
        lag.iter().find(|(t, _)| *t == 12.0).unwrap().1 / 1e6
    };
    assert_eq!(lag_at_wake("eevdf-6.6"), -1.0);
    assert_eq!(lag_at_wake("eevdf-6.12"), 0.0);
    assert_eq!(lag_at_wake("eevdf-6.17"), 0.0);
}

#[test]
fn eevdf_a_debtor_that_wakes_in_the_queue_gets_what_ran_since_the_last_update() {
    // d runs 0-2 and is kept queued with lag -1. At 8 the vruntime of h is still
    // the one that it was picked with, 0: d keeps its place at 2. Only then is h
    // updated, to 6, where it is not eligible. 6.6 places d with lag -1 again,
    // and h runs until the tick at 11.
    let mut b = Build::new(1);
    b.add("d", &[run(2), sleep(6), run(1)]);
    b.add("h", &[run(30)]);
    let back = |policy: &str| on_one_cpu(&b, policy, &ROUND, 100).drawn()[2].clone();
    assert_eq!(back("eevdf-6.6"), "cpu0 d 11..12");
    for policy in ["eevdf-6.12", "eevdf-6.17", "eevdf-6.18", "eevdf-7.2"] {
        assert_eq!(back(policy), "cpu0 d 8..9", "{policy}");
    }
}

#[test]
fn eevdf_of_7_2_updates_what_runs_before_a_debtor_wakes_in_the_queue() {
    // The same without ticks or timer in between: d keeps its place at 2, and so has 3 in the end.
    // Where h is updated to 6 first, the average is 4, and d, behind it by 2, is placed where h is.
    let set = [ROUND[0], ("hz", "100"), ("hrtick", "off")];
    let mut b = Build::new(1);
    b.add("d", &[run(2), sleep(6), run(1)]);
    b.add("h", &[run(30)]);
    for (policy, want) in [("eevdf-6.18", 3.0), ("eevdf-7.2", 7.0)] {
        let ran = on_one_cpu(&b, policy, &set, 100);
        assert_eq!(ran.drawn()[2], "cpu0 d 8..9", "{policy}");
        let of_it = series(&ran, 0, 0);
        assert_eq!(of_it.last().unwrap().1 / 1e6, want, "{policy}");
    }
}

#[test]
fn eevdf_shares_follow_the_weights() {
    // nice 0 and 5: 1024 to 335, 75.3 %.
    let ran = on_one_cpu(&hogs(&[0, 5], 10_000), "eevdf-6.17", &ROUND, 10_000);
    let share = shares(&ran, 2);
    let part = share[0] / (share[0] + share[1]);
    assert!((part - 1024.0 / 1359.0).abs() < 0.002, "{part}");
}

#[test]
fn eevdf_lag_stays_within_a_request_and_a_tick() {
    // V32: every lag recorded, of threads with equal weights that run and sleep.
    for policy in ALL {
        let mut b = Build::new(1);
        for i in 0..6 {
            b.add(&format!("h{i}"), &[run(200)]);
            b.add(&format!("s{i}"), &repeat(vec![run(1), sleep(7 + i)]));
        }
        let ran = on_one_cpu(&b, policy, &ROUND, 3_000);
        for t in 0..12 {
            let worst = series(&ran, 2, t)
                .iter()
                .map(|(_, lag)| lag.abs() / 1e6)
                .fold(0.0, f64::max);
            assert!(
                worst <= 3.0 + 1.0,
                "{policy}: thread {t} reached a lag of {worst} ms"
            );
        }
    }
}

#[test]
fn eevdf_a_cpu_that_idles_pulls_who_was_queued_longest_ago() {
    // z, of nice -20, keeps the others off CPU 1 until it ends at 3. There x has waited
    // since 0, y (nice -5, with an earlier deadline) since 1.
    // cpu0  a 0-..          cpu1  z 0-3  x 3-..
    let set = [
        ("base_slice", "10ms"),
        ("hz", "100"),
        ("wakeup_preemption", "off"),
        ("newidle_by_success", "off"),
    ];
    for policy in ALL {
        let mut b = Build::new(2);
        b.add("a", &[run(20)]);
        b.add("z", &[run(3)]).nice = -20;
        b.add("x", &[run(20)]);
        let y = b.add("y", &[run(20)]);
        (y.nice, y.start) = (-5, Some(MS));
        let machine = Machine::flat(2).unwrap();
        let ran = simulate(&b.load, machine, policy, &set, Some(5 * MS)).unwrap();
        assert_eq!(ran.drawn(), ["cpu1 z 0..3"], "{policy}: the others run on");
        let next = ran.timeline.rows.iter().find(|row| row.contains("migrate"));
        assert_eq!(next.unwrap(), "3000000 migrate 2 0->1", "{policy}");
    }
}

#[test]
fn scx_simple_runs_slices_of_20_ms_by_virtual_time() {
    // A slice that begins at a tick is over at the one after 20 ms.
    let ran = on_one_cpu(&hogs(&[0, 0], 40), "scx-simple", &[], 1000);
    let want = [
        "cpu0 a 0..24",
        "cpu0 b 24..48",
        "cpu0 a 48..64",
        "cpu0 b 64..80",
    ];
    assert_eq!(ran.drawn(), want);
}

#[test]
fn scx_simple_never_preempts_on_wakeup() {
    // s wakes at 6 and waits for the end of h's slice at 21, seen at the tick at 24.
    // cpu0  s 0-1  h 1-24  s 24-25
    let mut b = Build::new(1);
    b.add("s", &[run(1), sleep(5), run(1)]);
    b.add("h", &[run(60)]);
    let ran = on_one_cpu(&b, "scx-simple", &[], 1000);
    assert_eq!(
        first(&ran, 3),
        ["cpu0 s 0..1", "cpu0 h 1..24", "cpu0 s 24..25"]
    );
}
