//! srtf, ps, and what all policies share.
use super::super::policy::registry;
use super::*;

#[test]
fn srtf_runs_the_shortest_burst_and_preempts_for_it() {
    // cpu0  b 0-5 | a 5-8, then c (2 ms) wakes with less than a's 7 | c 8-10  a 10-17
    let mut b = Build::new(1);
    b.add("a", &[run(10)]);
    b.add("b", &[run(5)]);
    b.add("c", &[run(2)]).start = Some(8 * MS);
    let ran = on_one_cpu(&b, "srtf", &[], 1000);
    // All start at 0 in order: a is on the CPU first, for no time at all.
    let drawn: Vec<String> = ran
        .drawn()
        .into_iter()
        .filter(|r| r != "cpu0 a 0..0")
        .collect();
    assert_eq!(
        drawn,
        [
            "cpu0 b 0..5",
            "cpu0 a 5..8",
            "cpu0 c 8..10",
            "cpu0 a 10..17"
        ]
    );
}

#[test]
fn ps_shares_by_weight_within_a_quantum_or_two() {
    let ran = on_one_cpu(&hogs(&[0, 5, 10], 1000), "ps", &[], 500);
    let weights = [1024.0, 335.0, 110.0];
    let total: f64 = weights.iter().sum();
    for (got, weight) in shares(&ran, 3).iter().zip(weights) {
        assert!(
            (got - 500.0 * weight / total).abs() < 0.5,
            "{got} for {weight}"
        );
    }
}

#[test]
fn ps_holds_nothing_against_a_thread_that_was_alone() {
    // a has the CPU to itself for 100 ms; from then on it shares it with b.
    let mut b = Build::new(1);
    b.add("a", &[run(1000)]);
    b.add("b", &[run(1000)]).start = Some(100 * MS);
    let ran = on_one_cpu(&b, "ps", &[], 200);
    let got = shares(&ran, 2);
    assert!((got[0] - 150.0).abs() < 0.3, "{} of a", got[0]);
    assert!((got[1] - 50.0).abs() < 0.3, "{} of b", got[1]);
}

#[test]
fn real_time_runs_before_all_and_by_its_priority() {
    // cpu0  (fair f)  at 10: rt 20 for 5 ms; at 12: rt 80 for 1 ms, above it
    // cpu0  f 0-10  l 10-12  h 12-13  l 13-16  f 16-..
    for (_, preset) in registry::all() {
        let mut b = Build::new(1);
        b.add("f", &[run(20)]);
        let low = b.add("l", &[run(5)]);
        (low.class, low.rt_prio, low.start) = (Class::Fifo, 20, Some(10 * MS));
        let high = b.add("h", &[run(1)]);
        (high.class, high.rt_prio, high.start) = (Class::Fifo, 80, Some(12 * MS));
        let ran = on_one_cpu(&b, preset.name, &[], 1000);
        let want = [
            "cpu0 f 0..10",
            "cpu0 l 10..12",
            "cpu0 h 12..13",
            "cpu0 l 13..16",
            "cpu0 f 16..26",
        ];
        assert_eq!(ran.drawn(), want, "{}", preset.name);
    }
}

#[test]
fn unbound_threads_never_wait_beside_an_idle_cpu_in_one_queue_schedulers() {
    // V33 for 4BSD, whose private queues of bound threads are another matter:
    // hogs and sleepers without masks on four CPUs.
    for policy in ["4bsd", "bfs"] {
        let mut b = Build::new(4);
        for i in 0..6 {
            let mut steps = vec![run(2 + i), sleep(3), run(5), sleep(1 + i)];
            steps.push(Step::Repeat {
                to: 0,
                times: Some(40),
                counter: 0,
            });
            b.add(&format!("t{i}"), &steps).start = Some(i * MS);
        }
        let machine = Machine::flat(4).unwrap();
        let ran = simulate(&b.load, machine, policy, &[], None).unwrap();
        // At every instant: a CPU idles only if fewer than four threads run or
        // wait. Sweep over runs and waits (a wake begins a wait).
        let mut edges: Vec<(i64, i32, i32)> = Vec::new();
        for (_, _, from, to) in &ran.timeline.runs {
            edges.push((*from, 1, -1));
            edges.push((*to, -1, 0));
        }
        for row in &ran.timeline.rows {
            let queued = row.contains("step: Enqueued") || row.contains("step: New");
            let preempted = row.starts_with("Switch") && row.contains("left_as: Preempted");
            if queued || preempted {
                let from = row.find("ts: ").unwrap() + 4;
                let to = from + row[from..].find(',').unwrap();
                edges.push((row[from..to].parse().unwrap(), 0, 1));
            }
        }
        edges.sort_by_key(|e| e.0);
        let (mut running, mut waiting) = (0, 0);
        let mut i = 0;
        while i < edges.len() {
            let at = edges[i].0;
            while i < edges.len() && edges[i].0 == at {
                running += edges[i].1;
                waiting += edges[i].2;
                i += 1;
            }
            assert!(
                waiting == 0 || running == 4,
                "{policy} at {at}: {running} run, {waiting} wait"
            );
        }
    }
}
