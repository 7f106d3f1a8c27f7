//! Version 2 of the grammar: blanks between few fields, times since the first line,
//! and a line `N` where a thread's process, class or name is new.

use rustc_hash::FxHashMap;

use super::line::{EnqueueLine, KIND_IDLE, KIND_INTERRUPTIBLE, LONGEST, SwitchLine, Thread};
use crate::model::event::Comm;

/// Reads a line of version 2 from left to right, each field with the blank before it.
pub struct Words<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Words<'a> {
    pub fn new(bytes: &'a [u8], at: usize) -> Self {
        Self { bytes, at }
    }

    pub fn position(&self) -> usize {
        self.at
    }

    #[inline]
    fn blank(&mut self) -> Option<()> {
        (*self.bytes.get(self.at)? == b' ').then(|| self.at += 1)
    }

    #[inline]
    pub fn int(&mut self) -> Option<i64> {
        self.blank()?;
        let start = self.at;
        let mut value = 0i64;
        loop {
            let byte = *self.bytes.get(self.at)?;
            let digit = byte.wrapping_sub(b'0');
            if digit > 9 {
                return (self.at > start && matches!(byte, b' ' | b'\n')).then_some(value);
            }
            value = value.checked_mul(10)?.checked_add(i64::from(digit))?;
            self.at += 1;
        }
    }

    #[inline]
    pub fn small<T: TryFrom<i64>>(&mut self) -> Option<T> {
        T::try_from(self.int()?).ok()
    }

    pub fn ints<const N: usize>(&mut self) -> Option<[i64; N]> {
        let mut values = [0; N];
        for value in &mut values {
            *value = self.int()?;
        }
        self.end()?;
        Some(values)
    }

    /// The end of the line, which is passed.
    #[inline]
    pub fn end(&mut self) -> Option<()> {
        (*self.bytes.get(self.at)? == b'\n').then(|| self.at += 1)
    }

    /// All up to the end of the line, which is passed.
    pub fn rest(&mut self) -> Option<&'a [u8]> {
        self.blank()?;
        let rest = self.bytes.get(self.at..)?;
        let length = rest.iter().take(LONGEST).position(|&byte| byte == b'\n')?;
        self.at += length + 1;
        Some(&rest[..length])
    }

    /// A name and the length before it; up to the end of the line where the length is wrong
    /// (renamed between the two reads).
    pub fn name(&mut self) -> Option<Comm> {
        let length: usize = self.small()?;
        let start = self.at + 1;
        let end = start.checked_add(length).filter(|_| length <= LONGEST);
        if let Some(end) = end.filter(|&end| self.bytes.get(end) == Some(&b'\n')) {
            self.blank()?;
            self.at = end + 1;
            return Some(Comm::new(&self.bytes[start..end]));
        }
        self.rest().map(Comm::new)
    }
}

/// The values of a thread's last `N`.
#[derive(Clone, Copy)]
struct Told {
    pid: u32,
    class: i64,
    kind: u32,
    comm: Comm,
}

#[derive(Default)]
pub struct Names(FxHashMap<u32, Told>);

/// Added to the priority of an idle thread that begins to run.
const IDLE: i64 = 1000;

impl Names {
    /// `N`: tid pid class kind nice length name.
    pub fn learn(&mut self, words: &mut Words<'_>) -> Option<()> {
        let tid = words.small()?;
        let told = Told {
            pid: words.small()?,
            class: words.int()?,
            kind: words.small()?,
            comm: {
                let _nice = words.int()?;
                words.name()?
            },
        };
        self.0.insert(tid, told);
        Some(())
    }

    fn thread(&self, tid: u32, prio: i16) -> Thread {
        let told = self.0.get(&tid);
        Thread {
            tid,
            pid: told.map(|told| told.pid),
            prio,
            class: told.map_or(-1, |told| told.class),
            kind: told.map_or(0, |told| told.kind & !KIND_IDLE),
            last_cpu: -2,
            comm: told.map_or(Comm::default(), |told| told.comm),
        }
    }

    /// A thread that begins to run: tid, priority.
    fn incoming(&self, words: &mut Words<'_>) -> Option<Thread> {
        let tid = words.small()?;
        let prio = words.int()?;
        let mut thread = self.thread(tid, i16::try_from(prio % IDLE).ok()?);
        thread.kind |= if prio >= IDLE { KIND_IDLE } else { 0 };
        Some(thread)
    }

    /// FreeBSD's `S`: tid prio state, tid prio, count, why.
    pub fn freebsd_switch<'a>(&self, words: &mut Words<'a>) -> Option<SwitchLine<'a>> {
        let (tid, prio, state) = (words.small()?, words.small()?, words.small::<u32>()?);
        let mut prev = self.thread(tid, prio);
        prev.class = -1;
        // Nothing but an idle thread leaves without being on a queue or asleep.
        prev.kind |= if state % 10 == 2 { KIND_IDLE } else { 0 };
        prev.kind |= if state / 100 % 10 == 1 {
            KIND_INTERRUPTIBLE
        } else {
            0
        };
        let next = self.incoming(words)?;
        let _count = words.int()?;
        Some(SwitchLine {
            how: i64::from(state / 10 % 10),
            prev,
            state: state % 10,
            inhibitors: state / 1000,
            nvcsw: 0,
            nivcsw: 0,
            next,
            why: words.rest()?,
        })
    }

    /// Linux's `S`: tid prio state, tid prio, count.
    pub fn linux_switch(&self, words: &mut Words<'_>, cpu: u16) -> Option<SwitchLine<'static>> {
        let (tid, prio, state) = (words.small()?, words.small()?, words.int()?);
        let mut prev = self.linux_thread(tid, prio, cpu);
        prev.class = -1;
        let next = self.linux_thread(words.small()?, words.small()?, cpu);
        let _count = words.int()?;
        words.end()?;
        Some(SwitchLine {
            how: state % 10,
            prev,
            state: u32::try_from(state / 10).ok()?,
            inhibitors: 0,
            nvcsw: 0,
            nivcsw: 0,
            next,
            why: b"-",
        })
    }

    /// The idle threads have no `N`: their names are the kernel's.
    fn linux_thread(&self, tid: u32, prio: i16, cpu: u16) -> Thread {
        let mut thread = self.thread(tid, prio);
        if tid == 0 {
            thread.pid = Some(0);
            thread.class = 0;
            thread.kind = KIND_IDLE;
            thread.comm = Comm::new(format!("swapper/{cpu}").as_bytes());
        }
        thread
    }

    /// `E`: agent tid prio bits, and Linux's target CPU.
    pub fn enqueue(&self, words: &mut Words<'_>, tells_target: bool) -> Option<EnqueueLine> {
        let waker = words.small()?;
        let (tid, prio) = (words.small()?, words.small()?);
        let bits = words.int()?;
        let target_cpu = if tells_target {
            Some(words.small()?)
        } else {
            None
        };
        words.end()?;
        let mut who = self.thread(tid, prio);
        who.last_cpu = if bits & 1 != 0 { -1 } else { -2 };
        Some(EnqueueLine {
            waker,
            interrupts: bits >> 1 & 1,
            who,
            target_cpu,
        })
    }

    /// `R`: tid prio.
    pub fn successor(&self, words: &mut Words<'_>) -> Option<Thread> {
        let thread = self.incoming(words)?;
        words.end()?;
        Some(thread)
    }
}

/// FreeBSD's `L`: queue load; 4BSD has one queue for all (-1) and reports only the load.
pub fn load(words: &mut Words<'_>) -> Option<(i64, i64)> {
    let first = words.int()?;
    let load = match words.end() {
        Some(()) => return Some((-1, first)),
        None => words.int()?,
    };
    words.end()?;
    Some((first, load))
}

/// FreeBSD's `W`: tid prio.
pub fn woken(words: &mut Words<'_>) -> Option<(u32, i16)> {
    let woken = (words.small()?, words.small()?);
    words.end()?;
    Some(woken)
}

/// `X`: tid pid length name.
pub fn exit(words: &mut Words<'_>) -> Option<(u32, u32, Comm)> {
    Some((words.small()?, words.small()?, words.name()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_begin_with_a_blank_and_end_with_one_or_with_the_line() {
        let mut words = Words::new(b"E 12 3\n", 1);
        assert_eq!((words.int(), words.int()), (Some(12), Some(3)));
        assert!(words.end().is_some() && words.position() == 7);
        for wrong in [
            &b" 12"[..],
            b"12 ",
            b" -1 ",
            b"  1 ",
            b" 1\t",
            b" 9999999999999999999 ",
            b"",
        ] {
            assert_eq!(Words::new(wrong, 0).int(), None, "{wrong:?}");
        }
    }

    #[test]
    fn a_name_may_hold_a_newline_and_a_wrong_length_ends_with_the_line() {
        let mut words = Words::new(b" 3 a\nb\n 7 short\n 0 \n", 0);
        assert_eq!(words.name().unwrap().as_bytes(), b"a\nb");
        assert_eq!(words.name().unwrap().as_bytes(), b"short");
        assert_eq!(words.name().unwrap().as_bytes(), b"");
    }
}
