//! 4BSD and ULE.
use super::*;

/// Ten statistics ticks of 10 ms are a slice.
const STATHZ: (&str, &str) = ("stathz", "100");

#[test]
fn bsd4_takes_turns_of_a_tenth_of_a_second() {
    // estcpu reaches 10 in a slice: one priority worse, still the same list.
    // cpu0  a 0-100  b 100-200  a 200-300  b 300-400
    let ran = on_one_cpu(&hogs(&[0, 0], 200), "4bsd", &[STATHZ], 1000);
    assert_eq!(
        ran.drawn(),
        [
            "cpu0 a 0..100",
            "cpu0 b 100..200",
            "cpu0 a 200..300",
            "cpu0 b 300..400"
        ]
    );
}

#[test]
fn bsd4_estcpu_decays_by_two_thirds_a_second_at_load_one() {
    // 99 ticks by 1 s, times 2L / (2L + 1) with L = 1: 66.
    let set = [STATHZ, ("load_average", "1")];
    let ran = on_one_cpu(&hogs(&[0], 1500), "4bsd", &set, 2000);
    let estcpu = series(&ran, 0, 0);
    let at = |ms: f64| estcpu.iter().find(|(t, _)| *t == ms).unwrap().1;
    assert_eq!(at(990.0), 99.0);
    assert_eq!(at(1000.0), 66.0);
}

#[test]
fn bsd4_a_sleeper_is_queued_above_all_that_run_in_user_mode() {
    // s wakes at 55 and runs at once; h, the only other one, goes on.
    // cpu0  s 0-5  h 5-55  s 55-60  h 60-..: its slice ends at the 10th tick
    let mut b = Build::new(1);
    b.add("s", &[run(5), sleep(50), run(5)]);
    b.add("h", &[run(150)]);
    let ran = on_one_cpu(&b, "4bsd", &[STATHZ], 1000);
    let want = [
        "cpu0 s 0..5",
        "cpu0 h 5..55",
        "cpu0 s 55..60",
        "cpu0 h 60..160",
    ];
    assert_eq!(ran.drawn(), want);
}

#[test]
fn ule_14_slices_shrink_with_the_load() {
    // One other thread: 10 ticks. Two others: 5 ticks each. Six and more: 1.
    // cpu0  a 0-100  b 100-200  a 200-..
    let ran = on_one_cpu(&hogs(&[0, 0], 300), "ule-14", &[STATHZ], 2000);
    assert_eq!(first(&ran, 2), ["cpu0 a 0..100", "cpu0 b 100..200"]);
    let ran = on_one_cpu(&hogs(&[0, 0, 0], 300), "ule-14", &[STATHZ], 2000);
    // cpu0  a 0-50  b 50-100  c 100-150  a 150-200
    let want = [
        "cpu0 a 0..50",
        "cpu0 b 50..100",
        "cpu0 c 100..150",
        "cpu0 a 150..200",
    ];
    assert_eq!(first(&ran, 4), want);
    let ran = on_one_cpu(&hogs(&[0; 8], 300), "ule-14", &[STATHZ], 2000);
    assert_eq!(first(&ran, 2), ["cpu0 a 0..10", "cpu0 b 10..20"]);
}

#[test]
fn ule_2011_slices_do_not() {
    let ran = on_one_cpu(&hogs(&[0; 8], 300), "ule-2011", &[STATHZ], 2000);
    assert_eq!(first(&ran, 2), ["cpu0 a 0..100", "cpu0 b 100..200"]);
}

/// Four threads that want a third of the CPU each, and a hog.
fn crowd() -> Build {
    let mut b = Build::new(1);
    for i in 0..4 {
        b.add(&format!("i{i}"), &repeat(vec![run(3), sleep(6)]));
    }
    b.add("hog", &repeat(vec![run(1000)]));
    b
}

#[test]
fn ule_starves_a_hog_under_interactive_threads() {
    // run / (run + sleep) = 1/3 < 3/8: all four are interactive, wait as they may.
    for policy in ["ule-14", "ule-2011"] {
        let ran = on_one_cpu(&crowd(), policy, &[], 20_000);
        let late: i64 = ran
            .timeline
            .runs
            .iter()
            .filter(|(_, t, from, _)| *t == 4 && *from > 5_000 * MS)
            .map(|(_, _, from, to)| to - from)
            .sum();
        assert_eq!(late, 0, "{policy}");
        let score = series(&ran, 0, 0).last().unwrap().1;
        assert!(score < 30.0, "{policy}: {score}");
    }
}

#[test]
fn others_do_not_starve_it() {
    // 4BSD without the kernel's priority for those that wake: with it these four
    // preempt the hog at every wakeup, and it runs a moment once a second.
    for (policy, set) in [
        ("4bsd", &[("kernel_sleep_prio", "off")][..]),
        ("eevdf-6.17", &[]),
        ("o1", &[]),
        ("cfs-2.6.32", &[]),
        ("bfs", &[]),
    ] {
        let ran = on_one_cpu(&crowd(), policy, set, 20_000);
        let hog = shares(&ran, 5)[4];
        assert!(hog > 400.0, "{policy}: {hog} ms of 20 s");
    }
}

#[test]
fn ule_2003_swaps_current_and_next() {
    // New threads have one tick and score 0: current. Then they are batch, go to
    // next with hz / 7 = 14 ticks, and the queues change places.
    // cpu0  a 0-10  b 10-20 | a 20-160  b 160-300 | a 300-440
    let ran = on_one_cpu(&hogs(&[0, 0], 500), "ule-2003", &[STATHZ], 2000);
    let want = [
        "cpu0 a 0..10",
        "cpu0 b 10..20",
        "cpu0 a 20..160",
        "cpu0 b 160..300",
        "cpu0 a 300..440",
    ];
    assert_eq!(first(&ran, 5), want);
}

#[test]
fn ule_2003_runs_nothing_beyond_twenty_nice_values() {
    // b is 20 above a: no slice until a is gone; its first tick is the child's.
    // cpu0  a 0-10  b 10-20  a 20-510  b 510-..
    let ran = on_one_cpu(&hogs(&[-1, 19], 500), "ule-2003", &[STATHZ], 3000);
    let want = [
        "cpu0 a 0..10",
        "cpu0 b 10..20",
        "cpu0 a 20..510",
        "cpu0 b 510..1000",
    ];
    assert_eq!(ran.drawn(), want);
}

#[test]
fn ule_2003_slices_shrink_to_nothing_over_nineteen_nice_values() {
    // Of 14 ticks d * 14 / 19 are taken at d nice values above: 13 are, at 18.
    // cpu0  a 0-10  b 10-20 | a 20-160  b 160-170 | a 170-310  b 310-320
    let ran = on_one_cpu(&hogs(&[0, 18], 500), "ule-2003", &[STATHZ], 2000);
    let want = [
        "cpu0 a 0..10",
        "cpu0 b 10..20",
        "cpu0 a 20..160",
        "cpu0 b 160..170",
        "cpu0 a 170..310",
        "cpu0 b 310..320",
    ];
    assert_eq!(first(&ran, 6), want);
    // At 9, 9 * 14 / 19 = 6: 8 are left.
    let ran = on_one_cpu(&hogs(&[-5, 4], 500), "ule-2003", &[STATHZ], 2000);
    assert_eq!(first(&ran, 4)[3], "cpu0 b 160..240");
    // At 19 all are: b runs when a is gone. In 2005 it had a tick.
    let ran = on_one_cpu(&hogs(&[0, 19], 500), "ule-2003", &[STATHZ], 2000);
    assert_eq!(first(&ran, 4)[2], "cpu0 a 20..510");
    let later = [STATHZ, ("rules_2005", "on")];
    let ran = on_one_cpu(&hogs(&[0, 19], 500), "ule-2003", &later, 2000);
    assert!(ran.drawn().len() > 6, "{:?}", ran.drawn());
}

#[test]
fn ule_2003_balances_by_those_that_wait() {
    // Three hogs on two CPUs: a and c on cpu0, b on cpu1. The running thread of cpu0 does not
    // count, so one against one is balanced; with b gone one against none is not, and c moves at
    // the next balance, once a second.
    let moves = |b_ms: i64| {
        let mut load = Build::new(2);
        for (name, ms) in [("a", 5000), ("b", b_ms), ("c", 5000)] {
            load.add(name, &[run(ms)]);
        }
        let machine = Machine::flat(2).unwrap();
        let set = [STATHZ, ("steal", "off")];
        let ran = simulate(&load.load, machine, "ule-2003", &set, Some(4500 * MS)).unwrap();
        ran.counts.migrations
    };
    assert_eq!(moves(5000), 0);
    assert_eq!(moves(100), 1);
}

/// An interrupt every `every` ms, `n` times, on `cpu`, whose thread runs for 1 ms.
fn interrupt(b: &mut Build, cpu: Cpu, every: i64, n: usize) {
    let thread = b.add("swi", &[sleep(every), run(1)].repeat(n));
    thread.class = Class::Interrupt;
    thread.asleep = true;
    thread.cpu = Some(cpu);
}

#[test]
fn bsd4_an_interrupt_thread_runs_where_its_interrupt_came_though_another_cpu_idles() {
    // The hog goes back into the queue, and the idle CPU, which that calls, takes it. The second
    // interrupt comes on CPU 0 again, which idles.
    // cpu0  hog 0-10  swi 10-11  swi 21-22
    // cpu1  hog 10-60
    let mut b = Build::new(2);
    b.add("hog", &[run(60)]).cpu = Some(0);
    interrupt(&mut b, 0, 10, 2);
    let machine = Machine::flat(2).unwrap();
    let ran = simulate(&b.load, machine, "4bsd", &[STATHZ], Some(1000 * MS)).unwrap();
    let want = [
        "cpu0 hog 0..10",
        "cpu0 swi 10..11",
        "cpu1 hog 10..60",
        "cpu0 swi 21..22",
    ];
    assert_eq!(ran.drawn(), want);
}

#[test]
fn ule_an_interrupt_thread_comes_back_to_the_cpu_of_its_interrupt() {
    // Its CPU is busy at 10 and the other one idles, where it goes; at 21 its own idles.
    // cpu0  swi 10-11
    // cpu1  hog 0-12  swi 21-22
    let mut b = Build::new(2);
    b.add("hog", &[run(12)]).cpu = Some(1);
    interrupt(&mut b, 1, 10, 2);
    let machine = Machine::flat(2).unwrap();
    let ran = simulate(&b.load, machine, "ule-14", &[STATHZ], Some(1000 * MS)).unwrap();
    let want = ["cpu1 hog 0..12", "cpu0 swi 10..11", "cpu1 swi 21..22"];
    assert_eq!(ran.drawn(), want);
}

fn past(used: i64, ran: i64, slept: i64, charged: i64) -> Option<Past> {
    Some(Past {
        used: used * MS,
        ran: ran * MS,
        slept: slept * MS,
        charged: charged * MS,
    })
}

#[test]
fn bsd4_what_a_thread_was_charged_before_makes_it_worse_and_decays() {
    // a: 100 ticks, priority 88 + 100 / 8 + 20 = 120; b: 108, and takes the CPU as it starts.
    let mut b = hogs(&[0, 0], 90);
    b.load.threads[0].past = past(0, 0, 0, 1000);
    let ran = on_one_cpu(&b, "4bsd", &[STATHZ], 1000);
    let want = ["cpu0 a 0..0", "cpu0 b 0..90", "cpu0 a 90..180"];
    assert_eq!(ran.drawn(), want);

    // 100 ticks and 49 by half a second, of which 2L / (2L + 1) with L = 1 stay: 99.
    let mut b = hogs(&[0], 1500);
    b.load.threads[0].past = past(0, 0, 0, 1000);
    let set = [STATHZ, ("first_load", "1"), ("first_decay", "500ms")];
    let ran = on_one_cpu(&b, "4bsd", &set, 2000);
    let estcpu = series(&ran, 0, 0);
    let at = |ms: f64| estcpu.iter().find(|(t, _)| *t == ms).unwrap().1;
    assert_eq!((at(490.0), at(500.0)), (149.0, 99.0));
}

#[test]
fn ule_what_a_thread_did_before_makes_its_first_priority() {
    // Levels of 10 s / 48, that is 209 ticks: 5000 / 209 = 23 above 156. 900 of 4500 ms run:
    // a score of 50 * 900 / 3600, rounded to 12, and 88 + 12 * 48 / 30 = 107.
    let mut b = hogs(&[0, 0], 10);
    b.load.threads[0].past = past(5000, 3000, 1000, 0);
    b.load.threads[1].past = past(0, 900, 3600, 0);
    let ran = on_one_cpu(&b, "ule-14", &[STATHZ], 1000);
    let first = |t: u32, of: u16| series(&ran, of, t)[0].1;
    assert_eq!((first(0, 0), first(0, 1)), (50.0, 179.0));
    assert_eq!((first(1, 0), first(1, 1)), (12.0, 107.0));
    assert_eq!(ran.drawn()[..2], ["cpu0 a 0..0", "cpu0 b 0..10"]);
}
