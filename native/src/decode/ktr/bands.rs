//! FreeBSD's priority bands, where the number is all that is known of a class.

use crate::model::event::SchedClass;

/// First __FreeBSD_version that this reader takes for the renumbered bands
/// (one run queue level per priority; sys/sys/priority.h).
const RENUMBERED: u32 = 1_500_000;

/// The class a priority belongs to. `release` is kern.osreldate; without it
/// only the idle band is certain.
pub fn class(prio: i16, release: Option<u32>) -> Option<SchedClass> {
    let (interrupt, realtime, kernel) = match release {
        Some(release) if release >= RENUMBERED => (8, 40, 56),
        Some(_) => (48, 80, 120),
        None => return (prio >= 224).then_some(SchedClass::Idle),
    };
    Some(match prio {
        _ if prio < interrupt => SchedClass::Interrupt,
        _ if prio < realtime => SchedClass::Realtime,
        // A user thread that slept in the kernel shows a kernel priority, too.
        _ if prio < kernel => SchedClass::Unknown,
        ..224 => SchedClass::Timeshare,
        _ => SchedClass::Idle,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bands_by_release() {
        let old = |prio| class(prio, Some(1_402_000));
        let new = |prio| class(prio, Some(1_600_001));
        assert_eq!(
            (old(0), new(7)),
            (Some(SchedClass::Interrupt), Some(SchedClass::Interrupt))
        );
        assert_eq!(
            (old(48), new(8)),
            (Some(SchedClass::Realtime), Some(SchedClass::Realtime))
        );
        assert_eq!(
            (old(80), new(80)),
            (Some(SchedClass::Unknown), Some(SchedClass::Timeshare))
        );
        assert_eq!(
            (old(120), new(223)),
            (Some(SchedClass::Timeshare), Some(SchedClass::Timeshare))
        );
        assert_eq!(
            (old(224), class(255, None)),
            (Some(SchedClass::Idle), Some(SchedClass::Idle))
        );
        assert_eq!(class(100, None), None);
    }
}
