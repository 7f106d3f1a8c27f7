//! A capture folder of the perf recorder: `perf.data`, and what the capture
//! itself knows of host, window and threads.

use std::path::Path;

use crate::Options;
use crate::capture_folder::{CaptureFolder, recorder};
use crate::error::Result;
use crate::model::event::Source;
use crate::perfdata::PerfData;

pub fn recognise(path: &Path, _head: &[u8]) -> bool {
    path.is_dir() && recorder(path).as_deref() == Some("perf")
}

pub fn open(path: &Path, _options: &Options) -> Result<Box<dyn Source>> {
    let folder = CaptureFolder::open(path)?;
    let info = folder.info()?;
    Ok(Box::new(PerfData::in_folder(path)?.within_capture(info)))
}
