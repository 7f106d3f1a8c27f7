//! FreeBSD's priority bands, where the number is all that is known of a class.

use crate::model::event::SchedClass;

/// Where the real-time, kernel and timeshare bands begin, by the first
/// __FreeBSD_version that has them so (sys/sys/priority.h). The timeshare band ends at
/// 223 in all of them.
const BANDS: [(u32, (i16, i16, i16)); 3] = [
    // One run queue level per priority.
    (1_500_000, (8, 40, 56)),
    // Fewer interrupt priorities.
    (1_400_000, (16, 48, 88)),
    (0, (48, 80, 120)),
];

/// The class a priority belongs to. `release` is kern.osreldate; without it
/// only the idle band is certain.
pub fn class(prio: i16, release: Option<u32>) -> Option<SchedClass> {
    let Some(release) = release else {
        return (prio >= 224).then_some(SchedClass::Idle);
    };
    let found = BANDS.iter().find(|(first, _)| release >= *first);
    let (realtime, kernel, timeshare) = found?.1;
    Some(match prio {
        _ if prio < realtime => SchedClass::Interrupt,
        _ if prio < kernel => SchedClass::Realtime,
        // A user thread that slept in the kernel shows a kernel priority, too.
        _ if prio < timeshare => SchedClass::Unknown,
        ..224 => SchedClass::Timeshare,
        _ => SchedClass::Idle,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// First priorities of the real-time, kernel, timeshare and idle bands.
    #[test]
    fn bands_by_release() {
        let begins = |release: u32| {
            let of = |prio: i16| class(prio, Some(release));
            assert_eq!(of(0), Some(SchedClass::Interrupt));
            let first = |class| (0..=255).find(|prio| of(*prio) == Some(class));
            [
                SchedClass::Realtime,
                SchedClass::Unknown,
                SchedClass::Timeshare,
                SchedClass::Idle,
            ]
            .map(|class| first(class).unwrap())
        };
        assert_eq!(begins(1_302_001), [48, 80, 120, 224]);
        assert_eq!(begins(1_402_000), [16, 48, 88, 224]);
        assert_eq!(begins(1_600_001), [8, 40, 56, 224]);
        assert_eq!(class(255, None), Some(SchedClass::Idle));
        assert_eq!(class(100, None), None);
    }
}
