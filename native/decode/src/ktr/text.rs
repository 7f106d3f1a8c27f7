//! One KTRGRAPH line: `[index] cpu time KTRGRAPH group:"G", id:"ID", type:"V",
//! attributes: k:v, k:"v"`, as ktrdump -ct and schedgraph.d print it (FreeBSD
//! sys/sys/ktr.h; quotes in values are not escaped).

/// What a line reports about its subject.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fact<'a> {
    State(&'a str),
    Counter(i64),
    Point(&'a str),
}

/// A line taken apart; texts are slices of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Line<'a> {
    /// ktrdump's lines are numbered; those of schedgraph.d only after make_ktr.sh.
    pub numbered: bool,
    pub cpu: u16,
    pub time: u64,
    pub group: &'a str,
    pub id: &'a str,
    pub fact: Fact<'a>,
    pub attributes: &'a str,
}

impl<'a> Line<'a> {
    pub fn read(line: &'a str) -> Option<Self> {
        let (head, rest) = line.split_once("KTRGRAPH ")?;
        let mut numbers = head.split_ascii_whitespace();
        let (first, second, third) = (numbers.next()?, numbers.next()?, numbers.next());
        let (numbered, cpu, time) = match third {
            Some(time) => (true, second, time),
            None => (false, first, second),
        };
        if numbers.next().is_some() {
            return None;
        }
        let rest = rest.strip_prefix("group:\"")?;
        let (group, rest) = rest.split_once("\", id:\"")?;
        // An id may hold quotes; what follows it does not look like a name.
        let (at, kind) = [", state:", ", counter:", ", point:"]
            .iter()
            .filter_map(|kind| Some((rest.find(&format!("\"{kind}"))?, *kind)))
            .min()?;
        let id = &rest[..at];
        let rest = &rest[at + 1 + kind.len()..];
        let (value, attributes) = rest.rsplit_once(", attributes: ").unwrap_or((rest, "none"));
        let value = value.trim().trim_matches('"');
        let fact = match kind {
            ", state:" => Fact::State(value),
            ", counter:" => Fact::Counter(value.parse().ok()?),
            _ => Fact::Point(value),
        };
        Some(Self {
            numbered,
            cpu: cpu.parse().ok()?,
            time: parse_time(time)?,
            group,
            id,
            fact,
            attributes: attributes.trim(),
        })
    }

    /// An attribute's text, without its quotes.
    pub fn attribute(&self, name: &str) -> Option<&'a str> {
        let mut rest = self.attributes;
        loop {
            let (key, value) = rest.split_once(':')?;
            let (text, next) = match value.strip_prefix('"') {
                Some(quoted) => {
                    let end = quoted
                        .find("\", ")
                        .unwrap_or_else(|| quoted.trim_end().len());
                    let text = quoted[..end].trim_end_matches('"');
                    (text, quoted.get(end + 3..).unwrap_or(""))
                }
                None => value.split_once(", ").unwrap_or((value, "")),
            };
            if key.trim() == name {
                return Some(text.trim());
            }
            rest = next;
        }
    }

    pub fn number<T: std::str::FromStr>(&self, name: &str) -> Option<T> {
        self.attribute(name)?.parse().ok()
    }
}

/// ktrdump prints times in decimal, or in hexadecimal with 0x in old releases.
fn parse_time(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

/// A thread's id text: `name tid N`, or schedgraph.d's `process/name tid N`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ThreadId<'a> {
    pub tid: u32,
    pub name: &'a str,
    pub idle: bool,
}

impl<'a> ThreadId<'a> {
    /// `with_process`: the name starts with the process's and a slash.
    pub fn read(id: &'a str, with_process: bool) -> Option<Self> {
        let (name, tid) = id.rsplit_once(" tid ")?;
        let tid = tid.trim().parse().ok()?;
        let own = match name.split_once('/') {
            Some((_, own)) if with_process && !own.is_empty() => own,
            _ => name,
        };
        Some(Self {
            tid,
            name: own,
            idle: own.starts_with("idle: cpu") || own == "idle",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_ktrdump() {
        let line = Line::read(
            "   812   3 1234567890123 KTRGRAPH group:\"thread\", id:\"make tid 100402\", \
             state:\"runq add\", attributes: prio:152, linkedto:\"swi4: clock (0) tid 100010\"",
        )
        .unwrap();
        assert!(line.numbered);
        assert_eq!(
            (line.cpu, line.time, line.group),
            (3, 1_234_567_890_123, "thread")
        );
        assert_eq!(line.fact, Fact::State("runq add"));
        assert_eq!(line.number::<i16>("prio"), Some(152));
        let linked = ThreadId::read(line.attribute("linkedto").unwrap(), false).unwrap();
        assert_eq!((linked.tid, linked.name), (100_010, "swi4: clock (0)"));
    }

    #[test]
    fn a_line_of_schedgraph_d() {
        let line = Line::read(
            "0 8213461004 KTRGRAPH group:\"thread\", id:\"idle/idle: cpu0 tid 100003\", \
             state:\"idle\", attributes: prio:255",
        )
        .unwrap();
        assert!(!line.numbered);
        let id = ThreadId::read(line.id, true).unwrap();
        assert_eq!((id.tid, id.name, id.idle), (100_003, "idle: cpu0", true));
    }

    #[test]
    fn counters_and_empty_attributes() {
        let line = Line::read(
            "7 1 99 KTRGRAPH group:\"load\", id:\"CPU 1 load\", counter:2, attributes: none",
        )
        .unwrap();
        assert_eq!((line.id, line.fact), ("CPU 1 load", Fact::Counter(2)));
        assert_eq!(line.attribute("prio"), None);
    }

    #[test]
    fn names_may_hold_quotes_and_commas() {
        let line = Line::read(
            "7 1 99 KTRGRAPH group:\"thread\", id:\"a\", b \"c\" tid 100500\", state:\"sleep\", \
             attributes: prio:120, wmesg:\"sel\"ect\", lockname:\"(null)\"",
        )
        .unwrap();
        assert_eq!(ThreadId::read(line.id, false).unwrap().name, "a\", b \"c\"");
        assert_eq!(line.attribute("wmesg"), Some("sel\"ect"));
        assert_eq!(line.attribute("lockname"), Some("(null)"));
    }

    #[test]
    fn other_lines_are_none() {
        for text in [
            "",
            "index  cpu timestamp",
            "1 2 3 mi_switch: old thread",
            "KTRGRAPH x",
        ] {
            assert_eq!(Line::read(text), None, "{text:?}");
        }
    }
}
