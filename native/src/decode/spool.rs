//! A file without a name for expanded input: compressed streams cannot be
//! jumped about in, and on disk they take bounded memory.

use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;

use crate::error::{Error, Result};

/// Bytes on their way to the unnamed file.
pub struct Spool {
    writer: BufWriter<File>,
    len: u64,
}

impl Spool {
    pub fn new() -> Result<Self> {
        Ok(Self {
            writer: BufWriter::with_capacity(1 << 18, unnamed_file()?),
            len: 0,
        })
    }

    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.len += bytes.len() as u64;
        self.writer.write_all(bytes).map_err(|error| failed(&error))
    }

    /// The file, to be read from its beginning, and its length.
    pub fn finish(self) -> Result<(File, u64)> {
        let file = self
            .writer
            .into_inner()
            .map_err(|error| failed(error.error()))?;
        Ok((file, self.len))
    }
}

fn failed(error: &std::io::Error) -> Error {
    let folder = std::env::temp_dir();
    Error::io(
        format!(
            "write the expanded trace below {} (TMPDIR chooses another folder)",
            folder.display()
        ),
        error,
    )
}

/// Nothing is left behind, however we end: the name is gone at once.
fn unnamed_file() -> Result<File> {
    let folder = std::env::temp_dir();
    for attempt in 0..100u32 {
        let path = folder.join(format!(
            "schedscope-{}-{attempt}.expanded",
            std::process::id()
        ));
        match OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
        {
            Ok(file) => {
                let doing = |error| Error::io(format!("remove {}", path.display()), &error);
                std::fs::remove_file(&path).map_err(doing)?;
                return Ok(file);
            }
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(failed(&error)),
        }
    }
    Err(Error::usage(
        format!("{} holds a hundred files of ours already", folder.display()),
        "room for one more",
        "remove schedscope-*.expanded there, or set TMPDIR",
    ))
}
