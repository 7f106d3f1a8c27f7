//! Objects that are damaged, that need what is not simulated, and that do what they must not: each
//! is one sentence.
mod world;

use schedscope_sim::machine::Machine;
use schedscope_sim::rng::Rng;
use schedscope_sim::workload::Workload;
use world::{Build, MS, object, run, sleep, under};

fn load() -> Workload {
    let mut b = Build::new(2);
    b.add("a", &[run(3), sleep(1), run(3)]);
    b.add("b", &[run(5)]);
    b.add("c", &[run(4)]);
    b.load
}

fn answer(bytes: &[u8], set: &[(&str, &str)]) -> Result<world::Ran, String> {
    let answer = under(
        bytes,
        &load(),
        Machine::flat(2).unwrap(),
        set,
        Some(5_000 * MS),
    );
    if let Err(said) = &answer {
        assert!(said.starts_with("x.bpf.o: "), "{said}");
        assert!(!said.contains('\n'), "{said}");
    }
    answer
}

fn refused(bytes: &[u8], set: &[(&str, &str)]) -> String {
    let answer = answer(bytes, set);
    assert!(answer.is_err(), "{set:?}");
    answer.map(|_| ()).unwrap_err()
}

#[test]
fn what_is_missing_is_named_with_the_callback_that_needs_it() {
    let of = |needs: &str| refused(&object("missing"), &[("needs", needs)]);
    for (needs, what) in [
        ("1", "the kfunc scx_bpf_events"),
        ("2", "the kfunc scx_bpf_from_the_future"),
        ("3", "the map pages of type BPF_MAP_TYPE_LPM_TRIE"),
        ("4", "the helper 67"),
        ("5", "struct task_struct.mm"),
        (
            "6",
            "its own user-space half, which fills the map decisions",
        ),
    ] {
        let want = format!("ops.running needs {what}, which is not simulated");
        let said = of(needs);
        assert!(said.contains(&want), "{said}");
    }
    // What constants rule out is not needed.
    assert!(answer(&object("missing"), &[]).is_ok());
}

#[test]
fn a_program_that_loops_or_faults_is_told_in_one_sentence() {
    for (deed, what) in [
        ("1", "takes more than 1000000 instructions"),
        (
            "2",
            "reads 8 bytes at offset 8000000 of .bss, which has 32 bytes",
        ),
        ("3", "of .rodata, which it may only read"),
        ("4", "calls itself more than 8 deep"),
        ("5", "deep"),
        ("6", "as a thread"),
        ("7", "of the threads, which it may only read"),
        ("14", "as a timer in a map"),
        ("15", "as a record"),
        ("16", "as an iterator of a DSQ"),
        ("17", "as a control group"),
        ("22", "which is in no object"),
        ("23", "which is no object"),
        ("20", "has more than 64 iterators open"),
        (
            "21",
            "moves a thread between DSQs, which only dispatch and timers may",
        ),
    ] {
        let said = refused(&object("hostile"), &[("deed", deed)]);
        assert!(
            said.contains("ops.enqueue") && said.contains(what),
            "{deed}: {said}"
        );
    }
    for fine in ["0", "13"] {
        let ran = answer(&object("hostile"), &[("deed", fine)]).unwrap();
        assert_eq!(ran.outcome.unwrap().ended, None);
    }
}

#[test]
fn an_arena_cannot_be_left_and_has_a_limit() {
    for deed in ["0", "1", "3", "5", "6", "7"] {
        let ran = answer(&object("arena"), &[("deed", deed)]).unwrap();
        assert_eq!(ran.outcome.unwrap().ended, None, "{deed}");
    }
    for (deed, what) in [
        ("2", "bytes for the arena, and more than 256 MB in all"),
        ("4", "takes more than 1000000 instructions"),
    ] {
        let said = refused(&object("arena"), &[("deed", deed)]);
        assert!(
            said.contains("ops.enqueue") && said.contains(what),
            "{deed}: {said}"
        );
    }
}

#[test]
fn a_timer_with_a_callback_that_is_no_function_is_told_when_it_fires() {
    let said = refused(&object("hostile"), &[("deed", "18")]);
    assert!(said.contains("a timer gives"), "{said}");
    assert!(said.contains("as a function"), "{said}");
}

#[test]
fn cpus_that_go_on_kicking_each_other_let_time_pass() {
    let ran = answer(&object("arena"), &[("deed", "8")]).unwrap();
    assert_eq!(ran.outcome.unwrap().ended, None);
    let ends = ran.rows.iter().filter(|row| row.contains(" ends ")).count();
    assert_eq!(ends, 3);
}

#[test]
fn a_timer_that_starts_itself_at_once_lets_time_pass() {
    let ran = answer(&object("hostile"), &[("deed", "19")]).unwrap();
    let outcome = ran.outcome.unwrap();
    assert_eq!(outcome.ended, None);
    // One microsecond is the soonest.
    let most = ran.end / 1_000 + 100;
    assert!((outcome.callbacks as i64) <= most, "{}", outcome.callbacks);
}

#[test]
fn a_scheduler_that_errs_ends_and_its_threads_run_on() {
    for (deed, reason, what) in [
        ("8", "scx_bpf_error", "cannot go on with c[102]"),
        ("9", "runtime error", "non-existent DSQ 0x4d"),
        ("10", "runnable task stall", "c[102] failed to run for 1."),
        ("11", "runtime error", "already direct-dispatched"),
        ("12", "runtime error", "invalid CPU 900"),
    ] {
        let ran = answer(&object("hostile"), &[("deed", deed)]).unwrap();
        let ended = ran.outcome.unwrap().ended.unwrap();
        assert_eq!(ended.reason, reason, "{deed}");
        assert!(ended.message.contains(what), "{}", ended.message);
        let ends = ran.rows.iter().filter(|row| row.contains(" ends ")).count();
        assert_eq!(ends, 3, "{deed}: all threads came to their end");
    }
}

#[test]
fn settings_that_are_wrong_are_named() {
    let said = refused(&object("vtime"), &[("slice", "5ms")]);
    assert!(
        said.contains("no variable \"slice\"") && said.contains("slice_ns"),
        "{said}"
    );
    let said = refused(&object("vtime"), &[("fifo_order", "400")]);
    assert!(said.contains("fifo_order=400"), "{said}");
    let said = refused(&object("vtime"), &[("slice_ns.high", "1")]);
    assert!(said.contains("\"high\" is no part"), "{said}");
    let said = refused(&object("vtime"), &[("ops.flags", "SCX_OPS_FAST")]);
    assert!(said.contains("ops.flags=SCX_OPS_FAST"), "{said}");
    let said = refused(&object("arena"), &[("arena_task", "none")]);
    assert!(said.contains("no struct \"none\""), "{said}");
    let said = refused(&object("vtime"), &[("slice_ns", "soon")]);
    assert!(said.contains("slice_ns=soon"), "{said}");
}

#[test]
fn an_object_cut_anywhere_is_refused() {
    let whole = object("vtime");
    for length in (0..whole.len()).step_by(97) {
        assert!(answer(&whole[..length], &[]).is_err(), "{length} bytes");
    }
    for other in [&b"\x7fELF"[..], b"", b"schedscope", &[0; 4096]] {
        assert!(answer(other, &[]).is_err());
    }
}

/// Fixed seeds: the fuzzer goes on where this ends.
#[test]
fn an_object_with_wrong_bytes_is_refused_or_run_within_its_memory() {
    let mut r = Rng::new(49);
    for name in [
        "fifo", "vtime", "steal", "hostile", "layers", "moves", "groups", "trees", "arena",
    ] {
        let whole = object(name);
        for _ in 0..400 {
            let mut bytes = whole.clone();
            for _ in 0..1 + r.below(4) {
                let at = r.below(bytes.len() as u64) as usize;
                match r.below(3) {
                    0 => bytes[at] ^= 1 << r.below(8),
                    1 => bytes[at] = r.below(256) as u8,
                    _ => {
                        let end = (at + 4).min(bytes.len());
                        bytes[at..end].fill(*[0, 0x7f, 0xff].get(r.below(3) as usize).unwrap());
                    }
                }
            }
            let _ = answer(&bytes, &[]);
        }
    }
}
