//! trace.dat, the file of trace-cmd, versions 6 and 7 (docs/formats/trace-dat.md).

pub mod compression;
