//! Control groups under CFS and EEVDF.
use super::super::workload::{GroupMove, GroupSpec, Quota};
use super::{Build, MS, Machine, Ran, Step, first, on_one_cpu, repeat, run, shares, simulate};

const POLICIES: [&str; 8] = [
    "cfs-2.6.32",
    "cfs-5.10",
    "cfs-6.1",
    "eevdf-6.6",
    "eevdf-6.12",
    "eevdf-6.17",
    "eevdf-6.18",
    "eevdf-7.2",
];

fn add_group(b: &mut Build, parent: Option<u32>, shares: i64, quota_ms: Option<i64>) {
    b.load.groups.push(GroupSpec {
        name: format!("/{}", b.load.groups.len()),
        parent,
        shares,
        quota: quota_ms.map(|ms| Quota {
            ns: ms * MS,
            period: 100 * MS,
            phase: 0,
        }),
    });
}

/// A thread that never ends, for each of `groups`.
fn add_hogs(b: &mut Build, groups: &[Option<u32>]) {
    for group in groups {
        b.add("hog", &repeat(vec![run(100)])).group = *group;
    }
}

fn close(ran: &Ran, wanted: &[f64], what: &str) {
    let found = shares(ran, wanted.len());
    let whole: f64 = found.iter().sum();
    for (part, wanted) in found.iter().zip(wanted) {
        let part = part / whole;
        assert!((part - wanted).abs() < 0.01, "{what}: {found:?}");
    }
}

#[test]
fn groups_share_by_their_weights_and_threads_what_their_group_gets() {
    // 100 : 300 is 1/4 and 3/4, however many threads want it.
    for policy in POLICIES {
        let mut b = Build::new(1);
        add_group(&mut b, None, 1024, None);
        add_group(&mut b, None, 3072, None);
        add_hogs(&mut b, &[Some(0), Some(0), Some(0), Some(1)]);
        let ran = on_one_cpu(&b, policy, &[], 4000);
        close(&ran, &[1.0 / 12.0, 1.0 / 12.0, 1.0 / 12.0, 0.75], policy);
    }
}

#[test]
fn a_group_in_a_group_shares_what_that_one_gets() {
    // A thread of nice 0 beside a group of 100: one half each. In it a thread of nice 0
    // beside a group of 300: 1/8 and 3/8, the latter for two threads.
    for policy in POLICIES {
        let mut b = Build::new(1);
        add_group(&mut b, None, 1024, None);
        add_group(&mut b, Some(0), 3072, None);
        add_hogs(&mut b, &[None, Some(0), Some(1), Some(1)]);
        let ran = on_one_cpu(&b, policy, &[], 4000);
        close(&ran, &[0.5, 0.125, 0.1875, 0.1875], policy);
    }
}

#[test]
fn a_quota_used_up_is_whole_again_with_the_next_period() {
    // Ticks every 5 ms, when slices of 5 ms end:
    //   cpu0  0-20  100-120  200-220
    for policy in &POLICIES[1..] {
        let mut b = Build::new(1);
        add_group(&mut b, None, 1024, Some(20));
        b.add("a", &[run(60)]).group = Some(0);
        let ran = on_one_cpu(&b, policy, &[("hz", "200")], 1000);
        let wanted = ["cpu0 a 0..20", "cpu0 a 100..120", "cpu0 a 200..220"];
        assert_eq!(ran.drawn(), wanted, "{policy}");
    }
}

#[test]
fn what_runs_between_two_ticks_is_paid_back() {
    // A quota of 10 ms, charged at ticks every 4 ms. 12 ms ran when it is used up, 2 of them as
    // debt: the next period has 8. These end with a tick, so that there is no debt then.
    for policy in &POLICIES[1..] {
        let mut b = Build::new(1);
        add_group(&mut b, None, 1024, Some(10));
        b.add("a", &repeat(vec![run(1000)])).group = Some(0);
        let ran = on_one_cpu(&b, policy, &[("hz", "250")], 1000);
        let wanted = [
            "cpu0 a 0..12",
            "cpu0 a 100..108",
            "cpu0 a 200..212",
            "cpu0 a 300..308",
        ];
        assert_eq!(first(&ran, 4), wanted, "{policy}");
    }
}

#[test]
fn cpus_take_slices_of_one_quota() {
    // 10 ms for both CPUs together: first 5 ms for each. Later each gets a nanosecond when it
    // is let run, and is charged 1 ms at its first tick. CPU 0, whose tick is first, then
    // fills up from nearly -1 ms to a slice, which is 6 ms in all, and CPU 1 gets the rest.
    //   cpu0  0-5  100-106  200-206     cpu1  0-5  100-104  200-204
    for policy in &POLICIES[1..] {
        let mut b = Build::new(2);
        add_group(&mut b, None, 1024, Some(10));
        add_hogs(&mut b, &[Some(0), Some(0)]);
        let machine = Machine::flat(2).unwrap();
        let set = [("hz", "1000")];
        let ran = simulate(&b.load, machine, policy, &set, Some(250 * MS)).unwrap();
        let ms = |x: i64| x as f64 / MS as f64;
        for (cpu, then) in [(0, 6.0), (1, 4.0)] {
            let runs = ran.timeline.runs.iter().filter(|r| r.0 == cpu);
            let found: Vec<(f64, f64)> = runs.map(|r| (ms(r.2), ms(r.3))).collect();
            let wanted = [(0.0, 5.0), (100.0, 100.0 + then), (200.0, 200.0 + then)];
            assert_eq!(found, wanted, "{policy} cpu{cpu}");
        }
    }
}

/// What each of two threads ran before and after the first goes from group 0 (100) to group 1
/// (300), in which the second is, at 1200 ms of 2400; in parts of that time.
fn around_a_move(policy: &str, steps: &[Step]) -> [[f64; 2]; 2] {
    let mut b = Build::new(1);
    add_group(&mut b, None, 1024, None);
    add_group(&mut b, None, 3072, None);
    b.add("goes", steps).group = Some(0);
    b.add("stays", steps).group = Some(1);
    b.load.moves.push(GroupMove {
        at: 1200 * MS,
        thread: 0,
        group: Some(1),
    });
    let ran = on_one_cpu(&b, policy, &[], 2400);
    let mut found = [[0.0; 2]; 2];
    for (_, t, from, to) in &ran.timeline.runs {
        let until = |at: i64| (at.min(1200 * MS)) as f64 / (1200 * MS) as f64;
        let first = until(*to) - until(*from);
        found[0][*t as usize] += first;
        found[1][*t as usize] += (to - from) as f64 / (1200 * MS) as f64 - first;
    }
    found
}

#[test]
fn a_thread_that_changes_its_group_shares_what_its_new_one_gets() {
    // 1/4 and 3/4 before, one half each after; whether it never sleeps, or sleeps for a moment now
    // and then, so that it may be asleep at the move.
    let naps = repeat(vec![
        run(3),
        Step::Sleep {
            ns: 1000,
            disk: false,
        },
    ]);
    for steps in [repeat(vec![run(100)]), naps] {
        for policy in POLICIES {
            let [before, after] = around_a_move(policy, &steps);
            for (found, wanted) in before.iter().chain(&after).zip([0.25, 0.75, 0.5, 0.5]) {
                assert!(
                    (found - wanted).abs() < 0.03,
                    "{policy}: {before:?} {after:?}"
                );
            }
        }
    }
}

#[test]
fn a_thread_leaves_the_quota_of_its_group_behind() {
    // Held back from 20 ms on, it goes on at 50, where its new group has none; at 120 it comes
    // back, and what is left of its old group's quota is for it.
    //   cpu0  0-20  50-140
    for policy in &POLICIES[1..] {
        let mut b = Build::new(1);
        add_group(&mut b, None, 1024, Some(20));
        b.add("a", &repeat(vec![run(1000)])).group = Some(0);
        for (ms, group) in [(50, None), (120, Some(0))] {
            b.load.moves.push(GroupMove {
                at: ms * MS,
                thread: 0,
                group,
            });
        }
        let ran = on_one_cpu(&b, policy, &[("hz", "200")], 190);
        assert_eq!(ran.drawn(), ["cpu0 a 0..20", "cpu0 a 50..140"], "{policy}");
    }
}
