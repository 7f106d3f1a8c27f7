//! A CPU's data until it is known where in the file it goes: in memory while
//! it is small, else in a file beside the target.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use super::Settings;
use crate::decode::tracedat::compression::Kind;
use crate::error::{Error, Result};

/// Kept in memory up to here.
const SMALL: usize = 1 << 20;
/// trace-cmd's number of pages in a compressed chunk.
const PAGES_IN_CHUNK: usize = 10;

pub struct Spool {
    compression: Kind,
    big_endian: bool,
    page_bytes: usize,
    path: PathBuf,
    file: Option<File>,
    memory: Vec<u8>,
    /// Pages of the chunk that is being filled.
    chunk: Vec<u8>,
    chunks: u32,
    len: u64,
}

impl Spool {
    pub fn new(target: &Path, cpu: u16, settings: &Settings) -> Self {
        let mut path = target.as_os_str().to_owned();
        path.push(format!(".partial.cpu{cpu}"));
        Self {
            compression: settings.compression,
            big_endian: settings.big_endian,
            page_bytes: settings.page_bytes,
            path: path.into(),
            file: None,
            memory: Vec::new(),
            chunk: Vec::new(),
            chunks: 0,
            len: 0,
        }
    }

    pub fn push(&mut self, page: Vec<u8>) -> Result<()> {
        if self.compression == Kind::None {
            return self.write(&page);
        }
        self.chunk.extend(page);
        if self.chunk.len() >= PAGES_IN_CHUNK * self.page_bytes {
            self.compress()
        } else {
            Ok(())
        }
    }

    fn compress(&mut self) -> Result<()> {
        let packed = self.compression.compress(&self.chunk)?;
        let mut head = Vec::with_capacity(8);
        for size in [packed.len(), self.chunk.len()] {
            let size = size as u32;
            head.extend(if self.big_endian {
                size.to_be_bytes()
            } else {
                size.to_le_bytes()
            });
        }
        self.write(&head)?;
        self.write(&packed)?;
        self.chunks += 1;
        self.chunk.clear();
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.len += bytes.len() as u64;
        self.memory.extend(bytes);
        if self.memory.len() < SMALL {
            Ok(())
        } else {
            self.flush()
        }
    }

    fn flush(&mut self) -> Result<()> {
        let path = &self.path;
        let doing = || format!("write {}", path.display());
        let file = match &mut self.file {
            Some(file) => file,
            empty => {
                let file = File::options()
                    .read(true)
                    .write(true)
                    .create(true)
                    .truncate(true)
                    .open(path)
                    .map_err(|error| Error::io(doing(), &error))?;
                empty.insert(file)
            }
        };
        file.write_all(&self.memory)
            .map_err(|error| Error::io(doing(), &error))?;
        self.memory.clear();
        Ok(())
    }

    /// Nothing more will come.
    pub fn close(&mut self) -> Result<()> {
        if !self.chunk.is_empty() {
            self.compress()?;
        }
        if self.file.is_some() {
            self.flush()
        } else {
            Ok(())
        }
    }

    /// Size of the data in the file's tables: without the number of chunks, which trace-cmd does
    /// not count.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Appends the data to `out`; returns how many bytes that were.
    pub fn copy_to(&mut self, out: &mut impl Write, doing: &str) -> Result<u64> {
        let failed = |error: std::io::Error| Error::io(doing.to_string(), &error);
        let mut done = 0;
        if self.len == 0 {
            return Ok(0);
        }
        if self.compression != Kind::None {
            let chunks = self.chunks;
            let raw = if self.big_endian {
                chunks.to_be_bytes()
            } else {
                chunks.to_le_bytes()
            };
            out.write_all(&raw).map_err(failed)?;
            done += 4;
        }
        if let Some(file) = &mut self.file {
            file.seek(SeekFrom::Start(0)).map_err(failed)?;
            let mut block = vec![0; 1 << 18];
            loop {
                let n = file.read(&mut block).map_err(failed)?;
                if n == 0 {
                    break;
                }
                out.write_all(&block[..n]).map_err(failed)?;
            }
            // The room is needed for the file itself.
            self.remove();
        } else {
            out.write_all(&self.memory).map_err(failed)?;
        }
        Ok(done + self.len)
    }

    fn remove(&mut self) {
        if self.file.take().is_some() {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        self.remove();
    }
}
