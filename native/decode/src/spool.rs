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
    /// What is expanded, and how much may come of it.
    limit: Option<(String, u64)>,
}

/// What compressed traces grow to is 5 to 30 times their size; what grows
/// beyond this was made to fill the disk.
const RATIO: u64 = 200;
/// However small the input is, so much may come of it.
const FREE: u64 = 64 << 20;

impl Spool {
    /// For what has the size of its input.
    pub fn new() -> Result<Self> {
        Ok(Self {
            writer: BufWriter::with_capacity(1 << 18, unnamed_file()?),
            len: 0,
            limit: None,
        })
    }

    /// For what `name`, a compressed file of `len` bytes, expands to.
    pub fn expanding(name: &str, len: u64) -> Result<Self> {
        let limit = len.saturating_mul(RATIO).saturating_add(FREE);
        Ok(Self {
            limit: Some((name.to_string(), limit)),
            ..Self::new()?
        })
    }

    /// Bytes written so far.
    pub fn len(&self) -> u64 {
        self.len
    }

    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.len += bytes.len() as u64;
        if let Some((name, limit)) = &self.limit
            && self.len > *limit
        {
            return Err(Error::format(
                format!("{name} expands to more than {} MB", limit >> 20),
                format!("at most {RATIO} times its size and {} MB", FREE >> 20),
                "if you trust it, expand it with its own tool (zstd -d, perf inject) and open that",
            ));
        }
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
        format!(
            "{} already holds 100 temporary files of schedscope",
            folder.display()
        ),
        "fewer than 100",
        "remove schedscope-*.expanded there if no schedscope is running, or set TMPDIR",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_grows_beyond_all_traces_is_refused_in_one_sentence() {
        let mut spool = Spool::expanding("x.zst", 1000).unwrap();
        let zeros = vec![0; 1 << 20];
        let error = (0..100)
            .find_map(|_| spool.write(&zeros).err())
            .unwrap()
            .to_string();
        assert_eq!(spool.len(), FREE + (1 << 20));
        assert!(error.contains("more than 64 MB"), "{error}");
        // A real one of this size may be as large.
        let mut spool = Spool::expanding("x.zst", 1 << 20).unwrap();
        assert!((0..264).all(|_| spool.write(&zeros).is_ok()));
        assert!(spool.write(&zeros).is_err());
    }
}
