//! What Linux's balancer does with a thread that runs.
use super::*;

#[test]
fn two_hogs_on_the_threads_of_one_core_are_spread() {
    // Two cores of two hardware threads. Both hogs begin on core 0, pinned; at 1 ms their masks are
    // widened. No thread waits, so nothing can be pulled; after more than three failed passes a CPU
    // of core 1 has one of them pushed to it.
    let mut b = Build::new(4);
    let anywhere = 0;
    for (name, cpu) in [("a", 0), ("b", 1)] {
        let mask = b.mask(4, &[cpu]);
        let widen = Step::SetAffinity {
            of: cpu.into(),
            mask: anywhere,
        };
        b.add(name, &[run(1), widen, run(300)]).mask = mask;
    }
    for policy in [
        "cfs-5.10",
        "cfs-6.1",
        "eevdf-6.6",
        "eevdf-6.18",
        "eevdf-7.2",
    ] {
        let machine = Machine::grid(1, 2, 2).unwrap();
        let core = |c: u16| machine.smt(c).to_vec();
        let cores = [core(0), core(1)];
        let ran = simulate(&b.load, machine, policy, &[], None).unwrap();
        let where_at = |t: u32, at: i64| {
            let now = |r: &&(u16, u32, i64, i64)| r.1 == t && r.2 <= at && at < r.3;
            ran.timeline.runs.iter().find(now).map(|r| r.0)
        };
        assert_eq!(where_at(0, MS / 2), Some(0), "{policy}");
        let (a, b) = (
            where_at(0, 200 * MS).unwrap(),
            where_at(1, 200 * MS).unwrap(),
        );
        let shared = cores.iter().any(|c| c.contains(&a) && c.contains(&b));
        assert!(!shared, "{policy}: {a} and {b}");
    }
}

#[test]
fn a_running_thread_is_pushed_where_those_that_wait_may_not_move() {
    // h and p on CPU 0 of two, p bound there. h runs; p waits, and may not go to CPU 1, which
    // idles. After four failed passes h is pushed there.
    let mut b = Build::new(2);
    let bound = b.mask(2, &[0]);
    b.add("p", &[run(300)]).mask = bound;
    let both = b.mask(2, &[0, 1]);
    let widen = Step::SetAffinity { of: 1, mask: both };
    b.add("h", &[run(1), widen, run(300)]).mask = bound;
    for policy in [
        "cfs-2.6.32",
        "cfs-5.10",
        "cfs-6.1",
        "eevdf-6.6",
        "eevdf-6.18",
    ] {
        let machine = Machine::flat(2).unwrap();
        let ran = simulate(&b.load, machine, policy, &[], None).unwrap();
        let end = ran.timeline.runs.iter().map(|r| r.3).max().unwrap();
        // Together on one CPU they need 601 ms.
        assert!(end < 400 * MS, "{policy}: {end}");
    }
}
