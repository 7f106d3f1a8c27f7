//! Opening what is a regular file, and nothing else.

use std::fs::File;
use std::path::Path;

use crate::error::{Error, Result};

/// Opens a file to read. Of a pipe the opening itself would wait for a writer,
/// so what it is comes first.
pub fn open_regular(path: &Path) -> Result<File> {
    let name = path.display();
    let doing = |error| Error::io(format!("read {name}"), &error);
    let meta = std::fs::metadata(path).map_err(doing)?;
    if meta.is_dir() {
        return Err(Error::format(
            format!("{name} is a directory"),
            "a file",
            "name the file inside it",
        ));
    }
    if !meta.is_file() {
        return Err(Error::format(
            format!("{name} is a pipe or device"),
            "a regular file, because it is read at several positions",
            "save it to a file first",
        ));
    }
    File::open(path).map_err(doing)
}
