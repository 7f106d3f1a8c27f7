//! Every policy by the name users type.
use super::super::error::{Error, Result};
use super::super::machine::Machine;
use super::{
    Policy, Preset, Settings, Spec, bfs, bsd4, cfs_spec, eevdf_spec, fifo, o1, ps, rr, scx_simple,
    srtf, staircase, ule_2003, ule_spec,
};

/// The families, in the order they are shown.
pub const SPECS: &[&Spec] = &[
    &fifo::SPEC,
    &rr::SPEC,
    &srtf::SPEC,
    &ps::SPEC,
    &bsd4::SPEC,
    &ule_2003::SPEC,
    &ule_spec::SPEC,
    &o1::SPEC,
    &staircase::SPEC,
    &bfs::SPEC,
    &cfs_spec::SPEC,
    &eevdf_spec::SPEC,
    &scx_simple::SPEC,
];

/// Every (spec, preset) pair: one per name.
pub fn all() -> impl Iterator<Item = (&'static Spec, &'static Preset)> {
    SPECS
        .iter()
        .flat_map(|s| s.presets.iter().map(move |p| (*s, p)))
}

pub fn find(name: &str) -> Result<(&'static Spec, &'static Preset)> {
    all().find(|(_, p)| p.name == name).ok_or_else(|| {
        let names: Vec<&str> = all().map(|(_, p)| p.name).collect();
        Error::usage(
            format!("no policy is called {name:?}"),
            format!("one of {}", names.join(", ")),
            "schedscope simulate --policies describes them",
        )
    })
}

/// The names of policies that meet a condition, for an error.
pub fn names(meets: fn(&Spec) -> bool) -> String {
    let names: Vec<&str> = all()
        .filter(|(spec, _)| meets(spec))
        .map(|(_, preset)| preset.name)
        .collect();
    names.join(", ")
}

/// A policy ready to run, with the settings in force.
pub struct Made {
    pub spec: &'static Spec,
    pub settings: Settings,
    pub policy: Box<dyn Policy>,
}

pub fn make(
    name: &str,
    given: &[(String, String)],
    machine: &Machine,
    nthreads: usize,
) -> Result<Made> {
    let (spec, preset) = find(name)?;
    let settings = Settings::new(name, spec.tunables, preset.values, given)?;
    let policy = (spec.make)(&settings, machine, nthreads)?;
    Ok(Made {
        spec,
        settings,
        policy,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn names_are_unique_and_every_preset_can_be_made() {
        let mut seen = HashSet::new();
        let machine = Machine::flat(2).unwrap();
        for (_, preset) in all() {
            assert!(seen.insert(preset.name), "{} twice", preset.name);
            assert!(make(preset.name, &[], &machine, 3).is_ok());
        }
    }
}
