//! Tunables: named numbers of a policy that the caller may set.
use super::super::error::{Error, Result};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A time; written `10ms`, `750us`, `2s`, or a plain number of ns.
    Ns,
    /// A whole number.
    Int,
    /// Any number.
    Real,
    /// `on` or `off`.
    Bool,
    Choice(&'static [&'static str]),
}

#[derive(Debug, Clone, Copy)]
pub struct Tunable {
    pub name: &'static str,
    pub kind: Kind,
    /// As a user would write it.
    pub default: &'static str,
    /// Of the number: `ns`, `1/s`, `ticks`, `threads`; empty for none.
    pub unit: &'static str,
    /// Smallest and largest value allowed, for numbers.
    pub range: (f64, f64),
    pub doc: &'static str,
}

/// At least 1 (ns, tick, thread).
pub const POSITIVE: (f64, f64) = (1.0, f64::INFINITY);
/// A time of at most 1000 s, which leaves room for arithmetic.
pub const SPAN: (f64, f64) = (1.0, 1e12);
/// The same, or none.
pub const SPAN_OR_ZERO: (f64, f64) = (0.0, 1e12);
/// A number of ticks, threads, percent.
pub const COUNT: (f64, f64) = (1.0, 1e6);
/// The same, or none.
pub const COUNT_OR_ZERO: (f64, f64) = (0.0, 1e6);
/// Of a clock.
pub const CLOCK_HZ: (f64, f64) = (1.0, 1_000_000.0);

/// A time in ns.
pub const fn time(
    name: &'static str,
    default: &'static str,
    range: (f64, f64),
    doc: &'static str,
) -> Tunable {
    row(name, Kind::Ns, default, "ns", range, doc)
}

/// A whole number of `unit`.
pub const fn int(
    name: &'static str,
    default: &'static str,
    unit: &'static str,
    range: (f64, f64),
    doc: &'static str,
) -> Tunable {
    row(name, Kind::Int, default, unit, range, doc)
}

/// Any number of `unit`.
pub const fn real(
    name: &'static str,
    default: &'static str,
    unit: &'static str,
    range: (f64, f64),
    doc: &'static str,
) -> Tunable {
    row(name, Kind::Real, default, unit, range, doc)
}

/// `on` or `off`.
pub const fn switch(name: &'static str, default: &'static str, doc: &'static str) -> Tunable {
    row(name, Kind::Bool, default, "", UNBOUNDED, doc)
}

/// One of `all`.
pub const fn choice(
    name: &'static str,
    all: &'static [&'static str],
    default: &'static str,
    doc: &'static str,
) -> Tunable {
    row(name, Kind::Choice(all), default, "", UNBOUNDED, doc)
}

const fn row(
    name: &'static str,
    kind: Kind,
    default: &'static str,
    unit: &'static str,
    range: (f64, f64),
    doc: &'static str,
) -> Tunable {
    Tunable {
        name,
        kind,
        default,
        unit,
        range,
        doc,
    }
}

/// Of what is no number.
const UNBOUNDED: (f64, f64) = (f64::NEG_INFINITY, f64::INFINITY);

/// A named set of values: a release of the original.
#[derive(Debug, Clone, Copy)]
pub struct Preset {
    pub name: &'static str,
    pub doc: &'static str,
    pub values: &'static [(&'static str, &'static str)],
}

/// An internal quantity that a policy can record over time.
#[derive(Debug, Clone, Copy)]
pub struct Series {
    pub name: &'static str,
    pub unit: &'static str,
    pub doc: &'static str,
}

/// The values in force, one per tunable.
#[derive(Debug, Clone)]
pub struct Settings {
    tunables: &'static [Tunable],
    values: Vec<f64>,
    text: Vec<String>,
}

impl Settings {
    /// Defaults, then the preset's values, then the caller's.
    pub fn new(
        policy: &str,
        tunables: &'static [Tunable],
        preset: &[(&str, &str)],
        given: &[(String, String)],
    ) -> Result<Self> {
        let mut settings = Self {
            tunables,
            values: Vec::with_capacity(tunables.len()),
            text: Vec::with_capacity(tunables.len()),
        };
        for t in tunables {
            settings.values.push(parse(policy, t, t.default)?);
            settings.text.push(t.default.to_string());
        }
        for (name, value) in preset {
            settings.set(policy, name, value)?;
        }
        for (name, value) in given {
            settings.set(policy, name, value)?;
        }
        Ok(settings)
    }

    fn set(&mut self, policy: &str, name: &str, value: &str) -> Result<()> {
        let at = self.tunables.iter().position(|t| t.name == name);
        let Some(at) = at else {
            let names: Vec<&str> = self.tunables.iter().map(|t| t.name).collect();
            return Err(Error::usage(
                format!("policy {policy} has no tunable {name:?}"),
                if names.is_empty() {
                    "none: it has no tunables".to_string()
                } else {
                    format!("one of {}", names.join(", "))
                },
                "schedscope simulate --policies describes them",
            ));
        };
        self.values[at] = parse(policy, &self.tunables[at], value)?;
        self.text[at] = value.to_string();
        Ok(())
    }

    /// Name and value in force, as text, in the order of the table.
    pub fn in_force(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.tunables
            .iter()
            .zip(&self.text)
            .map(|(t, v)| (t.name, v.as_str()))
    }

    fn value(&self, name: &str) -> f64 {
        let at = self.tunables.iter().position(|t| t.name == name);
        debug_assert!(at.is_some(), "no tunable {name}");
        at.map_or(0.0, |i| self.values[i])
    }

    pub fn ns(&self, name: &str) -> i64 {
        self.value(name) as i64
    }

    pub fn int(&self, name: &str) -> i64 {
        self.value(name) as i64
    }

    pub fn real(&self, name: &str) -> f64 {
        self.value(name)
    }

    pub fn is_on(&self, name: &str) -> bool {
        self.value(name) != 0.0
    }

    /// Index into the tunable's list of choices.
    pub fn choice(&self, name: &str) -> usize {
        self.value(name) as usize
    }
}

fn parse(policy: &str, t: &Tunable, text: &str) -> Result<f64> {
    let trimmed = text.trim();
    let value = match t.kind {
        Kind::Ns => parse_ns(trimmed),
        Kind::Int => trimmed.parse::<i64>().ok().map(|v| v as f64),
        Kind::Real => trimmed.parse::<f64>().ok().filter(|v| v.is_finite()),
        Kind::Bool => match trimmed.to_ascii_lowercase().as_str() {
            "on" | "true" | "yes" | "1" => Some(1.0),
            "off" | "false" | "no" | "0" => Some(0.0),
            _ => None,
        },
        Kind::Choice(all) => all.iter().position(|c| *c == trimmed).map(|i| i as f64),
    };
    let numeric = !matches!(t.kind, Kind::Bool | Kind::Choice(_));
    match value {
        Some(v) if !numeric || (t.range.0..=t.range.1).contains(&v) => Ok(v),
        _ => Err(Error::usage(
            format!("policy {policy}: tunable {} = {text:?}", t.name),
            expected(t),
            format!("leave it out for the default, {}", t.default),
        )),
    }
}

fn expected(t: &Tunable) -> String {
    let range = match t.range {
        (lo, hi) if lo.is_finite() && hi.is_finite() => format!(" from {lo} to {hi}"),
        (lo, _) if lo.is_finite() => format!(" of at least {lo}"),
        _ => String::new(),
    };
    match t.kind {
        Kind::Ns => format!("a time{range}, such as 10ms, 750us or 4000000 (ns)"),
        Kind::Int => format!("a whole number{range}"),
        Kind::Real => format!("a number{range}"),
        Kind::Bool => "on or off".to_string(),
        Kind::Choice(all) => format!("one of {}", all.join(", ")),
    }
}

/// `10ms`, `1.5us`, `2s`, `300ns`, `300`: exact ns.
pub fn parse_ns(text: &str) -> Option<f64> {
    let split = text
        .find(|c: char| c.is_ascii_alphabetic())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let scale = match unit.trim() {
        "" | "ns" => 1.0,
        "us" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        _ => return None,
    };
    let v = number.trim().parse::<f64>().ok()? * scale;
    // Beyond 2^52 ns a double no longer counts single ns.
    (v.is_finite() && v.abs() < (1i64 << 52) as f64).then(|| v.round())
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: &[Tunable] = &[time("slice", "10ms", POSITIVE, "")];

    #[test]
    fn times_are_read_with_their_units() {
        assert_eq!(parse_ns("750us"), Some(750_000.0));
        assert_eq!(parse_ns("1.5 ms"), Some(1_500_000.0));
        assert_eq!(parse_ns("3 parsecs"), None);
    }

    #[test]
    fn the_caller_overrides_the_preset_overrides_the_default() {
        let s = |given: &[(String, String)]| Settings::new("p", T, &[("slice", "2ms")], given);
        assert_eq!(
            Settings::new("p", T, &[], &[]).unwrap().ns("slice"),
            10_000_000
        );
        assert_eq!(s(&[]).unwrap().ns("slice"), 2_000_000);
        let given = [("slice".to_string(), "5".to_string())];
        assert_eq!(s(&given).unwrap().ns("slice"), 5);
    }

    #[test]
    fn unknown_names_and_values_out_of_range_are_refused() {
        let set = |n: &str, v: &str| Settings::new("p", T, &[], &[(n.into(), v.into())]);
        assert!(
            set("slize", "1")
                .unwrap_err()
                .to_string()
                .contains("one of slice")
        );
        assert!(set("slice", "0").is_err());
        assert!(set("slice", "soon").is_err());
    }
}
