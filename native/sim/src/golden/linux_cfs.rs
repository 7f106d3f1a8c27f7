//! CFS of 5.10 and 6.1.
use super::*;

const BOTH: [&str; 2] = ["cfs-5.10", "cfs-6.1"];

/// Ticks of 1 ms. One CPU: latency 6 ms, least slice 0.75 ms, granularity 1 ms.
const TICKS: (&str, &str) = ("hz", "1000");

fn nap(us: i64) -> Step {
    Step::Sleep {
        ns: us * 1_000,
        disk: false,
    }
}

fn work(us: i64) -> Step {
    Step::Run(us * 1_000)
}

#[test]
fn two_hogs_share_the_latency() {
    // 3 ms each; the first tick after more than that is at 4.
    // cpu0  a 0-4  b 4-8  a 8-12
    for policy in BOTH {
        let ran = on_one_cpu(&hogs(&[0, 0], 20), policy, &[TICKS], 1000);
        let want = ["cpu0 a 0..4", "cpu0 b 4..8", "cpu0 a 8..12"];
        assert_eq!(first(&ran, 3), want, "{policy}");
    }
}

#[test]
fn from_5_13_on_no_slice_is_shorter_than_the_least() {
    // Weights 1024 and 15: 5.91 and 0.087 ms of 6. Ticks of 0.1 ms.
    // 5.10  a 0-6  b 6-6.1  a ..
    // 6.1   a 0-6  b 6-6.8  a ..      the first tick after 0.75
    for (policy, end) in [("cfs-5.10", "6.1"), ("cfs-6.1", "6.8")] {
        let ran = on_one_cpu(&hogs(&[0, 19], 20), policy, &[("hz", "10000")], 1000);
        let want = ["cpu0 a 0..6".into(), format!("cpu0 b 6..{end}")];
        assert_eq!(first(&ran, 2), want, "{policy}");
    }
}

#[test]
fn a_sleeper_preempts_by_a_granularity_of_its_own_weight() {
    // s runs 1 ms and wakes at 21.5, h being at 20.5: it is placed 3 behind. At nice 0
    // it needs 1 ms for that; at nice 10 1024 / 110 = 9.3, and waits for the tick.
    // nice 0   s 0-1  h 1-21.5  s 21.5-22.5
    // nice 10  s 0-1  h 1-22    s 22-23
    for policy in BOTH {
        for (nice, at) in [(0, 21.5), (10, 22.0)] {
            let mut b = Build::new(1);
            b.add("s", &[run(1), nap(20_500), run(1)]).nice = nice;
            b.add("h", &[run(50)]);
            let ran = on_one_cpu(&b, policy, &[TICKS], 1000);
            let want = [
                "cpu0 s 0..1".into(),
                format!("cpu0 h 1..{at}"),
                format!("cpu0 s {at}..{}", at + 1.0),
            ];
            assert_eq!(first(&ran, 3), want, "{policy} nice {nice}");
        }
    }
}

#[test]
fn a_short_sleep_gives_no_right_to_preempt() {
    // s, at 1, wakes at 2.5 when h is at 1.5: 0.5 behind. h runs on to the first tick
    // after its 3 ms.
    // cpu0  s 0-1  h 1-5  s 5-6
    for policy in BOTH {
        let mut b = Build::new(1);
        b.add("s", &[run(1), nap(1_500), run(1)]);
        b.add("h", &[run(50)]);
        let ran = on_one_cpu(&b, policy, &[TICKS], 1000);
        let want = ["cpu0 s 0..1", "cpu0 h 1..5", "cpu0 s 5..6"];
        assert_eq!(first(&ran, 3), want, "{policy}");
    }
}

#[test]
fn who_preempts_runs_though_another_is_further_behind() {
    // q (batch) wakes at 21.2 and is placed at 16.2, but does not preempt; s wakes at
    // 21.5, is placed at 16.5 and preempts h. s is the next buddy, and 0.3 from q.
    // cpu0  q 0-1  s 1-2  h 2-21.5  s 21.5-22.5  q 22.5-23.5
    let mut b = Build::new(1);
    b.add("q", &[run(1), nap(20_200), run(1)]).class = Class::Batch;
    b.add("s", &[run(1), nap(19_500), run(1)]);
    b.add("h", &[run(50)]);
    for policy in BOTH {
        let ran = on_one_cpu(&b, policy, &[TICKS], 1000);
        let want = ["cpu0 h 2..21.5", "cpu0 s 21.5..22.5", "cpu0 q 22.5..23.5"];
        assert_eq!(first(&ran, 5)[2..], want, "{policy}");
    }
    let ran = on_one_cpu(&b, "cfs-6.1", &[TICKS, ("buddies", "off")], 1000);
    assert_eq!(first(&ran, 4)[3], "cpu0 q 21.5..22.5", "without buddies");
}

#[test]
fn the_preempted_goes_on_where_many_are_runnable() {
    // s wakes at 9.5: h is at 4.5, g at 4, s is placed at 1 and preempts h. When s
    // sleeps again g is leftmost, but h, the last buddy, no more than 1 ms from it.
    // cpu0  s 0-1  h 1-5  g 5-9  h 9-9.5  s 9.5-10.5  h 10.5-14
    let mut b = Build::new(1);
    b.add("s", &[run(1), nap(8_500), run(1)]);
    b.add("h", &[run(50)]);
    b.add("g", &[run(50)]);
    for policy in BOTH {
        let last = |many: &str| {
            let set = [TICKS, ("sched_nr_latency", many)];
            first(&on_one_cpu(&b, policy, &set, 1000), 6)
        };
        let want = [
            "cpu0 s 0..1",
            "cpu0 h 1..5",
            "cpu0 g 5..9",
            "cpu0 h 9..9.5",
            "cpu0 s 9.5..10.5",
            "cpu0 h 10.5..14",
        ];
        assert_eq!(last("3"), want, "{policy}: three are many");
        assert_eq!(last("8")[5], "cpu0 g 10.5..14", "{policy}: of eight");
    }
}

#[test]
fn who_yields_is_passed_over_if_that_is_fair() {
    // b is at 4 when a yields at 3.5: within the granularity, b runs though a is
    // leftmost. At 1 the distance is 3, and a goes on.
    // cpu0  b 0-4  a 4-7.5  b 7.5-11
    for policy in BOTH {
        let timeline = |before: i64| {
            let mut b = Build::new(1);
            b.add("b", &[run(50)]);
            b.add("a", &[work(before), Step::Yield, run(20)]);
            first(&on_one_cpu(&b, policy, &[TICKS], 1000), 3)
        };
        let want = ["cpu0 b 0..4", "cpu0 a 4..7.5", "cpu0 b 7.5..11"];
        assert_eq!(timeline(3_500), want, "{policy}");
        assert_ne!(timeline(1_000)[1], "cpu0 a 4..5", "{policy}");
    }
}

#[test]
fn a_new_thread_has_its_place_from_its_parents_queue() {
    // One CPU: p is at 1 and alone; c begins a slice of two, 3 ms, behind: at 4.
    // Two CPUs, all times twice: 6 ms behind; c takes that along to CPU 1, whose
    // least virtual time is 0.
    let mut b = Build::new(1);
    b.add("p", &[run(1), Step::Fork(1), run(20)]);
    b.add("c", &[run(20)]).start = None;
    for policy in BOTH {
        for (cpus, at) in [(1, 4e6), (2, 6e6)] {
            let machine = Machine::flat(cpus).unwrap();
            b.load.masks[0] = CpuSet::all(cpus);
            let ran = simulate(&b.load, machine, policy, &[TICKS], Some(50 * MS)).unwrap();
            let begin = series(&ran, 0, 1)[0];
            assert_eq!(begin, (1.0, at), "{policy} on {cpus}");
        }
    }
}

#[test]
fn a_slice_that_is_over_is_over_at_each_tick() {
    // Weights 1024 and 110: 5.42 and 0.75 ms. Ticks of 2 ms. a runs 6, b 2, which puts it at
    // 18.6. From 14 on a's slice is over, and it goes on until a tick finds it behind b.
    // cpu0  a 0-6  b 6-8  a 8-22
    for policy in BOTH {
        let ran = on_one_cpu(&hogs(&[0, 10], 50), policy, &[("hz", "500")], 1000);
        let want = ["cpu0 a 0..6", "cpu0 b 6..8", "cpu0 a 8..22"];
        assert_eq!(first(&ran, 3), want, "{policy}");
    }
}

#[test]
fn a_preemption_goes_by_the_clock_of_its_wakeup() {
    // s wakes at 21.5, h being at 20.5, and is queued 0.1 later; it runs from 22 on for 1 ms.
    // h is charged up to 21.6, and s from there on. It was placed 3 behind, at 17.5. No tick,
    // which would set the clock, comes in between.
    // cpu0  s 0-1  h 1-22  s 22-23
    let mut b = Build::new(1);
    b.add("s", &[run(1), nap(20_500), run(1)]);
    b.add("h", &[run(50)]);
    for policy in BOTH {
        for (skips, of_h, of_s) in [("on", 20.6e6, 18.9e6), ("off", 21e6, 18.5e6)] {
            let mut machine = Machine::flat(1).unwrap();
            machine.costs.preempt_ns = MS / 2;
            machine.costs.enqueue_ns = MS / 10;
            let set = [("hz", "250"), ("skip_clock_update", skips)];
            let ran = simulate(&b.load, machine, policy, &set, Some(50 * MS)).unwrap();
            assert_eq!(first(&ran, 3)[2], "cpu0 s 22..23", "{policy}");
            let of = |t, ms| {
                let all = series(&ran, 0, t);
                all.iter().rfind(|(at, _)| *at == ms).map(|(_, v)| *v)
            };
            assert_eq!(of(1, 22.0), Some(of_h), "{policy} {skips}");
            assert_eq!(of(0, 23.0), Some(of_s), "{policy} {skips}");
        }
    }
}

#[test]
fn shares_follow_the_weights() {
    // nice 0 and 5: 1024 to 335, 75.3 %.
    for policy in BOTH {
        let ran = on_one_cpu(&hogs(&[0, 5], 10_000), policy, &[TICKS], 10_000);
        let share = shares(&ran, 2);
        let part = share[0] / (share[0] + share[1]);
        assert!((part - 1024.0 / 1359.0).abs() < 0.002, "{policy}: {part}");
    }
}
