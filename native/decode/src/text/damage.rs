//! Lines that were cut or overwritten, and what may be missing around them.
//!
//! See docs/trace-model.md, Losses: `truncated`.

use super::fields::find;
use super::line::PERF_RECORD;

/// Fields with which lines of the scheduler end.
const TAILS: [&[u8]; 3] = [b" next_prio=", b" target_cpu=", b" dest_cpu="];

/// Is a line in which no event can be read one of the trace that was cut? Others stand there,
/// too: the function tracer's, call chains, what programs printed on several lines.
pub fn is_cut(text: &[u8]) -> bool {
    if TAILS.iter().any(|tail| find(text, tail).is_some()) {
        return true;
    }
    let Some(after) = after_head(text) else {
        return false;
    };
    // The option `stacktrace` writes "<stack trace>" behind each event, in a line of its own.
    // perf script --show-task-events has records of its own. A marker's end may stand alone.
    let names_no_event = after.starts_with(b"<") || after.starts_with(PERF_RECORD) || after == b"E";
    find(text, b" <-").is_none() && !after.contains(&b'|') && !names_no_event
}

/// What follows `[001] d..2. 4836.436159: `.
fn after_head(text: &[u8]) -> Option<&[u8]> {
    let close = find(text, b"] ")?;
    let open = text[..close].iter().rposition(|&byte| byte == b'[')?;
    let cpu = &text[open + 1..close];
    if cpu.is_empty() || !cpu.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let rest = &text[close + 2..];
    let colon = find(rest, b": ")?;
    let begin = rest[..colon].iter().rposition(|&byte| byte == b' ');
    let stamp = &rest[begin.map_or(0, |at| at + 1)..colon];
    let digits = |&byte: &u8| byte.is_ascii_digit() || byte == b'.';
    (stamp.len() > 2 && stamp.contains(&b'.') && stamp.iter().all(digits))
        .then(|| &rest[colon + 2..])
}

/// Where lines are damaged, others may be missing: of every CPU, from the line before to the
/// next one that can be read.
#[derive(Debug, Default)]
pub struct Damage {
    last: Option<i64>,
    open: bool,
}

impl Damage {
    pub fn found(&mut self) {
        self.open = true;
    }

    /// A readable line. Returns the hole that ends with it.
    pub fn line(&mut self, ts: i64) -> Option<(i64, i64)> {
        let begin = self.last;
        self.last = Some(begin.map_or(ts, |last| last.max(ts)));
        std::mem::take(&mut self.open)
            .then_some(begin?)
            .map(|begin| (begin, begin.max(ts)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_without_its_beginning_or_end_is_cut() {
        let cut: [&[u8]; 4] = [
            b"    kworker/u12:0-5     [002]    76.697934: scheu=2",
            b"    kworker/u12:0-5     [002] d..2.    76.697934: sched_swi",
            b"ev_state=S ==> next_comm=x next_pid=7 next_prio=120",
            b"success=1 target_cpu=2",
        ];
        for text in cut {
            assert!(is_cut(text), "{}", String::from_utf8_lossy(text));
        }
    }

    #[test]
    fn lines_of_other_kinds_are_not() {
        let whole: [&[u8]; 9] = [
            b"         app.one-655   [000] 50260.000300: E",
            b"               x    77 [001]     1.990000000: PERF_RECORD_SWITCH OUT preempt",
            b"            bash-1977  [000] d..2. 17284.993652: <stack trace>",
            b"            bash-1977  [000] .... 17284.993652: sys_close <-system_call_fastpath",
            b" 0)   0.633 us    |  fput();",
            b" => futex_wait_queue",
            b"\tffffffff810a1b2c __schedule+0x1c ([kernel.kallsyms])",
            b"##### CPU 2 buffer started ####",
            b"second line of what [a] program: printed",
        ];
        for text in whole {
            assert!(!is_cut(text), "{}", String::from_utf8_lossy(text));
        }
    }

    #[test]
    fn a_hole_reaches_from_the_line_before_to_the_next() {
        let mut damage = Damage::default();
        damage.found();
        assert_eq!(damage.line(10), None);
        assert_eq!(damage.line(20), None);
        damage.found();
        damage.found();
        assert_eq!(damage.line(30), Some((20, 30)));
        assert_eq!(damage.line(40), None);
        damage.found();
        assert_eq!(damage.line(35), Some((40, 40)));
    }
}
