//! One line of the bpftrace script: a letter, integers one space apart, and a
//! name that may hold anything as the last field (docs/capture-format.md).

use crate::ftrace::states::StateTable;
use crate::model::event::{Comm, Event, Party, PriorityCause, State, WakeKind};

/// Stands for the end of a line in a name. No name holds a NUL.
pub const LINE_END: u8 = 0;

/// Reads fields from left to right. `None` means: not a line of the script.
pub struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    #[inline]
    pub fn int(&mut self) -> Option<i64> {
        let negative = *self.0.first()? == b'-';
        let digits = &self.0[usize::from(negative)..];
        let mut value: i64 = 0;
        let mut length = 0;
        while let Some(digit) = digits.get(length).map(|byte| byte.wrapping_sub(b'0'))
            && digit <= 9
        {
            value = value.checked_mul(10)?.checked_add(i64::from(digit))?;
            length += 1;
        }
        self.0 = match digits.get(length) {
            Some(b' ') => &digits[length + 1..],
            None => &[],
            Some(_) => return None,
        };
        (length > 0).then_some(if negative { -value } else { value })
    }

    #[inline]
    pub fn small<T: TryFrom<i64>>(&mut self) -> Option<T> {
        T::try_from(self.int()?).ok()
    }

    fn cpu(&mut self) -> Option<Option<u16>> {
        self.int().map(|cpu| u16::try_from(cpu).ok())
    }

    fn name(&mut self) -> Comm {
        let name = std::mem::take(&mut self.0);
        if name.contains(&LINE_END) {
            let ends = name
                .iter()
                .map(|&byte| if byte == LINE_END { b'\n' } else { byte });
            Comm::new(&ends.collect::<Vec<u8>>())
        } else {
            Comm::new(name)
        }
    }

    fn party(&mut self) -> Option<Party> {
        let prio = self.small()?;
        Some(Party {
            tid: self.small()?,
            prio: Some(prio),
            ..Party::default()
        })
    }
}

/// What begins every event line.
#[derive(Debug, Clone, Copy)]
pub struct Start {
    pub letter: u8,
    pub ts: i64,
    pub cpu: u16,
    pub seq: u64,
}

impl Start {
    #[inline]
    pub fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let [
            letter @ (b'S' | b'K' | b'E' | b'N' | b'M' | b'F' | b'C' | b'R' | b'P' | b'X' | b'Q'),
            b' ',
            ..,
        ] = *fields.0
        else {
            return None;
        };
        fields.0 = &fields.0[2..];
        Some(Self {
            letter,
            ts: fields.int()?,
            cpu: fields.small()?,
            seq: fields.small()?,
        })
    }

    pub fn rank(&self) -> u8 {
        match self.letter {
            b'S' => 0,
            b'K' | b'E' | b'N' => 1,
            b'M' => 2,
            _ => 3,
        }
    }

    pub fn event_name(letter: u8) -> &'static str {
        match letter {
            b'S' => "sched_switch",
            b'K' => "sched_waking",
            b'E' => "sched_wakeup",
            b'N' => "sched_wakeup_new",
            b'M' => "sched_migrate_task",
            b'F' => "task_newtask",
            b'C' => "sched_process_exec",
            b'R' => "task_rename",
            b'P' => "sched_pi_setprio",
            b'Q' => "hrtimer_expire_entry",
            _ => "sched_process_exit",
        }
    }
}

/// The start of a switch line: the recorder's own switch-out, which has no line (at `since`, to
/// `tid`), if there was one, and the next thread of the line's switch.
pub struct Since {
    pub since: i64,
    pub tid: u32,
    pub prio: i16,
    pub next_tid: Option<u32>,
}

/// Of a switch line. `fields` stand behind `seq`.
pub fn since(mut fields: Fields<'_>) -> Option<Since> {
    let since = fields.int()?;
    let _state = fields.int()?;
    Some(Since {
        since,
        prio: fields.small()?,
        tid: fields.small()?,
        next_tid: fields.int().and_then(|_prio| fields.small()),
    })
}

/// The events of one line, at most two. `fields` stand behind `seq`.
pub fn events(
    start: &Start,
    fields: &mut Fields<'_>,
    states: &StateTable,
) -> Option<[Option<Event>; 2]> {
    let Start {
        letter, ts, cpu, ..
    } = *start;
    let one = |event| Some([Some(event), None]);
    match letter {
        b'S' => {
            let _since = fields.int()?;
            let (prev_state, plus) = states.decode(fields.small::<u64>()?);
            let prev = fields.party()?;
            let mut next = fields.party()?;
            next.comm = fields.name();
            // R without + is a preemption on the way to user mode, or a yield.
            let preempted = match prev_state {
                State::Runnable if plus => Some(true),
                State::Runnable => None,
                _ => Some(false),
            };
            one(Event::Switch {
                ts,
                cpu,
                prev,
                prev_state,
                preempted,
                next,
            })
        }
        b'K' | b'E' | b'N' => {
            let kind = match letter {
                b'K' => WakeKind::Waking,
                b'E' => WakeKind::Enqueued,
                _ => WakeKind::New,
            };
            // The script cannot see whether an interrupt did the waking.
            let waker = Some(fields.small()?);
            let target_cpu = fields.cpu()?;
            one(Event::Wakeup {
                ts,
                cpu,
                kind,
                waker,
                current: waker,
                who: fields.party()?,
                target_cpu,
            })
        }
        b'M' => {
            let tid = fields.small()?;
            let who = Party {
                tid,
                prio: Some(fields.small()?),
                ..Party::default()
            };
            one(Event::Migrate {
                ts,
                cpu,
                who,
                from_cpu: fields.cpu()?,
                to_cpu: fields.cpu()?,
            })
        }
        b'F' => {
            let parent = fields.small()?;
            let parent = Party {
                tid: parent,
                pid: Some(fields.small()?),
                ..Party::default()
            };
            let child = fields.small()?;
            let same_process = Some(fields.int()? != 0);
            let child = Party {
                tid: child,
                comm: fields.name(),
                ..Party::default()
            };
            one(Event::Fork {
                ts,
                parent,
                child,
                same_process,
            })
        }
        b'C' => {
            let (tid, old_tid) = (fields.small()?, fields.small()?);
            let comm = fields.name();
            Some([
                Some(Event::Exec { ts, tid, old_tid }),
                Some(Event::Rename { ts, tid, comm }),
            ])
        }
        b'R' => {
            let tid = fields.small()?;
            one(Event::Rename {
                ts,
                tid,
                comm: fields.name(),
            })
        }
        b'P' => {
            let who = Party {
                tid: fields.small()?,
                ..Party::default()
            };
            let _old = fields.int()?;
            one(Event::Priority {
                ts,
                who,
                prio: fields.small()?,
                cause: PriorityCause::PiSetprio,
            })
        }
        b'Q' => one(Event::QuotaRefill {
            ts,
            cpu,
            timer: fields.int()? as u64,
        }),
        _ => {
            let tid = fields.small()?;
            one(Event::Exit {
                ts,
                who: Party {
                    tid,
                    pid: Some(fields.small()?),
                    ..Party::default()
                },
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Option<[Option<Event>; 2]> {
        let mut fields = Fields(line.as_bytes());
        let start = Start::read(&mut fields)?;
        events(&start, &mut fields, &StateTable::for_release("6.18.0"))
    }

    #[test]
    fn a_switch_line_keeps_a_name_with_spaces() {
        let Some(
            [
                Some(Event::Switch {
                    prev,
                    prev_state,
                    preempted,
                    next,
                    ..
                }),
                None,
            ],
        ) = read("S 5321876067235 1 3 0 256 120 28211 120 27580 opt cgu.14")
        else {
            panic!("no switch");
        };
        assert_eq!(
            (prev.tid, prev_state, preempted),
            (28211, State::Runnable, Some(true))
        );
        assert_eq!(
            (next.tid, next.comm.as_bytes()),
            (27580, b"opt cgu.14".as_slice())
        );
    }

    #[test]
    fn a_timer_is_told_by_an_address_of_the_kernels_half() {
        let Some([Some(Event::QuotaRefill { ts, cpu, timer }), None]) =
            read("Q 5321876067235 1 3 -110233374261248")
        else {
            panic!("no refill");
        };
        assert_eq!(
            (ts, cpu, timer),
            (5_321_876_067_235, 1, 0xffff_9bbe_4ae2_8000)
        );
    }

    #[test]
    fn what_is_no_line_is_none() {
        for line in [
            "",
            "S",
            "S 1",
            "K 1 2 3 4 5 6",
            "Z 1 2 3",
            "K 1 2 3 4 5 6 7x",
            "K 99999999999999999999 1 2",
        ] {
            assert!(read(line).is_none(), "{line:?}");
        }
    }
}
