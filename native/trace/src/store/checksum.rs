//! The checksum of a stored file: CRC-32 as in zlib and PNG (ISO 3309), of all or some bytes.

use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use crc32fast::Hasher;

use crate::error::{Error, Result};
use crate::hooks::check_interrupt;
use crate::regular_file::open_regular;

/// Bytes that are read at a time: they stay in a processor's cache.
const BLOCK: usize = 1 << 18;

/// Of `length` bytes from `offset` on, or of those that there are.
pub fn crc32(path: &Path, offset: u64, length: u64) -> Result<u32> {
    let failed = |error| Error::io(format!("read {}", path.display()), &error);
    let mut file = open_regular(path)?;
    file.seek(SeekFrom::Start(offset)).map_err(failed)?;
    let mut some = file.take(length);
    let mut block = vec![0; BLOCK];
    let mut hasher = Hasher::new();
    loop {
        let n = some.read(&mut block).map_err(failed)?;
        if n == 0 {
            return Ok(hasher.finalize());
        }
        hasher.update(&block[..n]);
        check_interrupt()?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_check_value_of_the_catalogue_and_parts() {
        let path = std::env::temp_dir().join(format!("schedscope-crc-{}", std::process::id()));
        std::fs::write(&path, b"123456789").expect("written");
        // CRC-32/ISO-HDLC, check value.
        assert_eq!(crc32(&path, 0, u64::MAX).expect("read"), 0xcbf4_3926);
        let four = crc32(&path, 1, 4).expect("read");
        std::fs::write(&path, b"2345").expect("written");
        assert_eq!(crc32(&path, 0, u64::MAX).expect("read"), four);
        assert_eq!(crc32(&path, 9, 4).expect("read"), 0);
        std::fs::remove_file(&path).expect("removed");
        assert!(crc32(&path, 0, 1).is_err());
    }
}
