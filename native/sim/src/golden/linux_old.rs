//! O(1), Staircase, CFS of 2.6.31 and 2.6.32, BFS.
use super::*;

#[test]
fn o1_swaps_the_arrays_when_all_slices_are_used() {
    // 100 ms at nice 0, 5 ms at nice 19; a used slice goes to the expired array.
    // cpu0  a 0-100  b 100-105 | a 105-205  b 205-210
    let ran = on_one_cpu(&hogs(&[0, 19], 200), "o1", &[], 1000);
    let want = [
        "cpu0 a 0..100",
        "cpu0 b 100..105",
        "cpu0 a 105..205",
        "cpu0 b 205..210",
    ];
    assert_eq!(first(&ran, 3), want[..3]);
    assert_eq!(first(&ran, 4)[3], "cpu0 b 205..400", "a has ended");
}

#[test]
fn o1_slices_follow_nice() {
    // The first one runs its whole slice against a nicer one.
    for (nice, ms) in [(-20, 800), (-1, 420), (0, 100), (10, 50), (19, 5)] {
        let ran = on_one_cpu(&hogs(&[nice, 19], 2000), "o1", &[], 5000);
        assert_eq!(first(&ran, 1), [format!("cpu0 a 0..{ms}")], "nice {nice}");
    }
}

#[test]
fn o1_a_sleeper_rises_to_the_full_bonus_and_preempts() {
    // V31: a hog beside a thread that runs 5 % of the time.
    let mut b = Build::new(1);
    b.add("hog", &repeat(vec![run(1000)]));
    b.add("s", &repeat(vec![run(1), sleep(19)]));
    let ran = on_one_cpu(&b, "o1", &[], 10_000);
    let last = |s: u16, t: u32| series(&ran, s, t).last().unwrap().1;
    assert_eq!(last(1, 1), 10.0, "bonus");
    assert_eq!(last(2, 1), 115.0, "priority of the sleeper");
    assert!(
        series(&ran, 2, 0).iter().all(|(_, p)| *p == 125.0),
        "the hog stays"
    );
    // Once it has its bonus it runs the moment it wakes: 1 ms of every 20.
    let mut starts: Vec<i64> = Vec::new();
    for (_, t, from, to) in &ran.timeline.runs {
        if *t == 1 && *from > 2_000 * MS {
            assert_eq!(to - from, MS);
            starts.push(*from);
        }
    }
    assert!(starts.windows(2).all(|w| w[1] - w[0] == 20 * MS));
}

#[test]
fn o1_a_forked_child_runs_first() {
    // The parent's 100 ticks are shared: at 10 ms it has 90 left, 45 each.
    // cpu0  p 0-10  c 10-30  p 30-..
    let mut b = Build::new(1);
    b.add("p", &[run(10), Step::Fork(1), run(20)]);
    b.add("c", &[run(20)]).start = None;
    let ran = on_one_cpu(&b, "o1", &[], 1000);
    assert_eq!(
        ran.drawn(),
        ["cpu0 p 0..10", "cpu0 c 10..30", "cpu0 p 30..50"]
    );
}

#[test]
fn o1_a_new_thread_earns_nothing_by_its_first_wait() {
    // A new thread waits behind a's first slice and has no credit when it runs.
    // cpu0  a 0-100 | t 100-..
    // One that woke has slept 10 ms (times 10 at no bonus): 124, no better than a
    // at nice -1; its whole wait of 410 ms counts too.
    // cpu0  a 0-420 | t 420-..
    let credit = |sleeper: bool, parent: bool| {
        let mut b = Build::new(1);
        let mut first = vec![run(10)];
        first.extend(parent.then_some(Step::Fork(1)));
        first.push(run(490));
        b.add("a", &first).nice = if sleeper { -1 } else { 0 };
        let steps = [sleep(10), run(20)];
        let t = b.add("t", &steps[usize::from(!sleeper)..]);
        t.asleep = sleeper;
        t.start = if sleeper { Some(0) } else { Some(10 * MS) };
        if parent {
            t.start = None;
        }
        let ran = on_one_cpu(&b, "o1", &[("child_first", "off")], 1000);
        let runs = &ran.timeline.runs;
        let turn = runs.iter().find(|r| r.1 == 1 && r.3 - r.2 > 15 * MS);
        let begin = turn.unwrap().2 / MS;
        let earned = |before: &dyn Fn(i64) -> bool| {
            let all = series(&ran, 0, 1);
            let last = all.iter().rfind(|(ms, _)| before(*ms as i64));
            last.unwrap().1
        };
        (begin, earned(&|ms| ms < begin), earned(&|ms| ms <= begin))
    };
    assert_eq!(credit(false, false), (100, 0.0, 0.0), "started at 10 ms");
    // The fork halves the slice before the tick of 10 ms: 91 left, 45 for a, less that tick.
    assert_eq!(credit(false, true), (54, 0.0, 0.0), "forked at 10 ms");
    let (begin, queued, ran) = credit(true, false);
    assert_eq!((begin, queued), (420, 100e6), "woken");
    assert!(ran > queued, "woken: {ran}");
}

#[test]
fn staircase_equal_hogs_take_turns_of_one_interval() {
    // V28. Each step down is 10 ms: 120, 121, 122..
    // cpu0  a 0-10  b 10-20  c 20-30  a 30-40 ..
    let ran = on_one_cpu(&hogs(&[0, 0, 0], 40), "staircase", &[], 1000);
    let want: Vec<String> = (0..9)
        .map(|i| {
            format!(
                "cpu0 {} {}..{}",
                ["a", "b", "c"][i % 3],
                10 * i,
                10 * i + 10
            )
        })
        .collect();
    assert_eq!(first(&ran, 9), want);
    let steps: Vec<f64> = series(&ran, 1, 0).iter().map(|(_, p)| *p).collect();
    assert_eq!(steps[..3], [120.0, 121.0, 122.0]);
}

#[test]
fn staircase_nice_19_meets_nice_0_only_on_the_lowest_step() {
    // a goes down 20 steps of 10 ms, 120 to 139; b is always at 139.
    // cpu0  a 0-190 (at 139 now, behind b)  b 190-200  a 200-..
    let ran = on_one_cpu(&hogs(&[0, 19], 2000), "staircase", &[], 4000);
    assert_eq!(first(&ran, 2), ["cpu0 a 0..190", "cpu0 b 190..200"]);
}

#[test]
fn staircase_compute_mode_has_ten_times_the_interval() {
    let ran = on_one_cpu(&hogs(&[0, 0], 200), "staircase-compute", &[], 1000);
    assert_eq!(first(&ran, 2), ["cpu0 a 0..100", "cpu0 b 100..200"]);
}

#[test]
fn cfs_shares_the_latency_and_ends_slices_at_ticks() {
    // One CPU, 2.6.32: 5 ms for two, a slice is over when more than 2.5 ms ran.
    // cpu0  a 0-3  b 3-6  a 6-9 at 1000 Hz; 0-4 4-8 at 250 Hz
    let b = hogs(&[0, 0], 12);
    let ran = on_one_cpu(&b, "cfs-2.6.32", &[("hz", "1000")], 1000);
    assert_eq!(
        first(&ran, 3),
        ["cpu0 a 0..3", "cpu0 b 3..6", "cpu0 a 6..9"]
    );
    let ran = on_one_cpu(&b, "cfs-2.6.32", &[("hz", "250")], 1000);
    assert_eq!(
        first(&ran, 3),
        ["cpu0 a 0..4", "cpu0 b 4..8", "cpu0 a 8..12"]
    );
}

#[test]
fn cfs_slices_on_two_cpus() {
    // V29: k hogs per CPU, f = 2. 2.6.31: 40/k ms up to 5, then 8; 2.6.32: 10/k,
    // then 2; each ends at the first tick after which *more* has run.
    for (policy, hz, latency, least) in [
        ("cfs-2.6.31", 250, 40.0, 8.0),
        ("cfs-2.6.31", 1000, 40.0, 8.0),
        ("cfs-2.6.32", 250, 10.0, 2.0),
        ("cfs-2.6.32", 1000, 10.0, 2.0),
    ] {
        for k in [2, 3, 4, 5, 8] {
            let mut b = Build::new(2);
            for i in 0..2 * k {
                b.add(&format!("t{i}"), &[run(400)]);
            }
            let hz_text = format!("{hz}");
            let machine = Machine::flat(2).unwrap();
            let set = [("hz", hz_text.as_str())];
            let ran = simulate(&b.load, machine, policy, &set, Some(150 * MS)).unwrap();
            let ideal = if k <= 5 {
                latency / f64::from(k)
            } else {
                least
            };
            let tick = 1000.0 / f64::from(hz);
            let want = ((ideal / tick).floor() + 1.0) * tick;
            let own: Vec<f64> = ran
                .timeline
                .runs
                .iter()
                .filter(|r| r.0 == 0)
                .map(|r| (r.3 - r.2) as f64 / MS as f64)
                .collect();
            assert!(own.len() >= 3, "{policy} {hz} {k}: {own:?}");
            assert!(
                own.iter().all(|x| *x == want),
                "{policy} {hz} {k}: {want} {own:?}"
            );
        }
    }
}

#[test]
fn cfs_a_sleeper_comes_back_with_half_a_latency_and_preempts() {
    // One CPU, 2.6.32, 1000 Hz. s sleeps 20 ms; h has run on to vruntime 20 and
    // more; s is placed 2.5 ms behind it, more than the granularity of 1 ms.
    // cpu0  s 0-1  h 1-21  s 21-22  h 22-..
    let mut b = Build::new(1);
    b.add("s", &[run(1), sleep(20), run(1)]);
    b.add("h", &[run(50)]);
    let ran = on_one_cpu(&b, "cfs-2.6.32", &[("hz", "1000")], 1000);
    assert_eq!(
        ran.drawn(),
        [
            "cpu0 s 0..1",
            "cpu0 h 1..21",
            "cpu0 s 21..22",
            "cpu0 h 22..52"
        ]
    );
}

#[test]
fn bfs_takes_turns_of_its_interval() {
    // One CPU: 6 ms; a's new deadline is behind b's.
    // cpu0  a 0-6  b 6-12  a 12-18  b 18-24
    let ran = on_one_cpu(&hogs(&[0, 0], 12), "bfs", &[], 1000);
    assert_eq!(
        ran.drawn(),
        [
            "cpu0 a 0..6",
            "cpu0 b 6..12",
            "cpu0 a 12..18",
            "cpu0 b 18..24"
        ]
    );
}

#[test]
fn bfs_a_sleeper_keeps_its_deadline_and_preempts() {
    // Deadlines: both 252 at first; h's is 258 from 6 on, 265 from 13 on; s comes
    // back at 16 with 252.
    // cpu0  h 0-6  s 6-7  h 7-16  s 16-17  h 17-..
    let mut b = Build::new(1);
    b.add("h", &[run(30)]);
    b.add("s", &[run(1), sleep(9), run(1)]);
    let ran = on_one_cpu(&b, "bfs", &[], 1000);
    let want = [
        "cpu0 h 0..6",
        "cpu0 s 6..7",
        "cpu0 h 7..16",
        "cpu0 s 16..17",
        "cpu0 h 17..32",
    ];
    assert_eq!(ran.drawn(), want);
    let deadlines: Vec<f64> = series(&ran, 0, 0).iter().map(|(_, d)| d / 1e6).collect();
    assert_eq!(deadlines[..3], [252.0, 258.0, 265.0]);
}

#[test]
fn bfs_preempts_the_latest_deadline_of_all_cpus() {
    // Two CPUs, 12 ms. The nice values give h0 12 ms * 2 * 21 = 504, h1 (nice 5)
    // 624 and s 504: s takes h1's CPU, not the one where it slept.
    // cpu0  h0 0-..          cpu1  s 0-1  h1 1-4  s 4-5  h1 5-..
    let mut b = Build::new(2);
    b.add("h0", &[run(8)]);
    b.add("s", &[run(1), sleep(3), run(1)]);
    b.add("h1", &[run(8)]).nice = 5;
    let machine = Machine::flat(2).unwrap();
    let ran = simulate(&b.load, machine, "bfs", &[], None).unwrap();
    let want = [
        "cpu0 h0 0..8",
        "cpu1 s 0..1",
        "cpu1 h1 1..4",
        "cpu1 s 4..5",
        "cpu1 h1 5..10",
    ];
    assert_eq!(ran.drawn(), want);
}
