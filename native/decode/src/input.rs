//! A file read at positions: bounded windows instead of a memory map, so that
//! a file that shrinks or ends early is an error and never a signal.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::error::{Error, Result};
use crate::hooks::{allow_more_files, check_interrupt};
use crate::regular_file::open_regular;
use crate::spool::Spool;

/// An open file, its length, and the name errors call it by.
pub struct Input {
    file: File,
    name: String,
    len: u64,
}

/// Files that may be open under the usual limit of 1024, with all else that is open.
const USUAL: usize = 200;

/// Some formats have files for each CPU. Where the limit is too low, opening says so.
pub fn make_room_for_files(cpus: usize) {
    if cpus >= USUAL {
        allow_more_files();
    }
}

impl Input {
    pub fn open(path: &Path) -> Result<Self> {
        let file = open_regular(path)?;
        let name = path.display().to_string();
        let meta = file
            .metadata()
            .map_err(|error| Error::io(format!("read {name}"), &error))?;
        Ok(Self {
            file,
            name,
            len: meta.len(),
        })
    }

    /// Opens a file that may be compressed as a whole (`NAME.zst`): such a one
    /// is expanded to disk first, since it is read at positions.
    pub fn open_expanding(path: &Path) -> Result<Self> {
        let input = Self::open(path)?;
        if path.extension().is_none_or(|extension| extension != "zst") {
            return Ok(input);
        }
        let damaged = |error: std::io::Error| {
            Error::format(
                format!("{} does not expand: {error}", input.name),
                "a whole zstd file",
                "copy it again, or expand it with zstd -d to see what is left",
            )
        };
        let mut expanded = zstd::Decoder::new(&input.file).map_err(damaged)?;
        let mut spool = Spool::expanding(&input.name, input.len)?;
        let mut buffer = vec![0; 1 << 17];
        loop {
            check_interrupt()?;
            match expanded.read(&mut buffer).map_err(damaged)? {
                0 => break,
                count => spool
                    .write(&buffer[..count])
                    .map_err(|error| error.within(&input.name))?,
            }
        }
        let (file, len) = spool.finish()?;
        Ok(Self {
            file,
            name: input.name.clone(),
            len,
        })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn len(&self) -> u64 {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Fills `buffer` from `at`; returns how many bytes there were.
    pub fn read_at(&self, buffer: &mut [u8], at: u64) -> Result<usize> {
        let mut done = 0;
        while done < buffer.len() {
            match read_some(&self.file, &mut buffer[done..], at + done as u64) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) => return Err(Error::io(format!("read {}", self.name), &e)),
            }
        }
        Ok(done)
    }

    /// Fills `buffer` from `at`, or says what is missing.
    pub fn read_exact_at(&self, buffer: &mut [u8], at: u64, what: &str) -> Result<()> {
        let wanted = buffer.len();
        let got = self.read_at(buffer, at)?;
        if got == wanted {
            Ok(())
        } else {
            Err(self.ends_early(at, wanted as u64, what))
        }
    }

    /// The error of a file that stops inside `what`.
    pub fn ends_early(&self, at: u64, wanted: u64, what: &str) -> Error {
        Error::format(
            format!("{} ends at byte {} inside {what}", self.name, self.len),
            format!("{wanted} bytes from byte {at}"),
            "the file was cut short: copy or record it again",
        )
    }

    /// The error of a field that cannot be right.
    pub fn wrong(
        &self,
        at: u64,
        found: impl std::fmt::Display,
        expected: impl Into<String>,
    ) -> Error {
        Error::format(
            format!("{}, byte {at}: {found}", self.name),
            expected,
            "the file is damaged or of another kind: copy or record it again",
        )
    }
}

#[cfg(unix)]
fn read_some(file: &File, buffer: &mut [u8], at: u64) -> std::io::Result<usize> {
    std::os::unix::fs::FileExt::read_at(file, buffer, at)
}

#[cfg(windows)]
fn read_some(file: &File, buffer: &mut [u8], at: u64) -> std::io::Result<usize> {
    std::os::windows::fs::FileExt::seek_read(file, buffer, at)
}
