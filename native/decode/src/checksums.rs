//! Are the files of a capture folder as its recorder wrote them? The recorder's last act is
//! `cksum` of each (docs/capture-format.md); older captures, and those of a killed recorder, have
//! no such list.

use std::fs::File;
use std::io::Read;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use rustc_hash::FxHashSet;
use serde_json::{Map, Value, json};

use crate::capture_folder::read_text;
use crate::chores::Chores;
use crate::each::each;
use crate::error::{Error, Result};
use crate::hooks::check_interrupt;
use crate::model::event::{EventSink, Extent, Source, SourceEnd, SourceInfo};
use crate::regular_file::open_regular;

/// The list, in the lines that POSIX `cksum` prints: checksum, bytes, name.
const LIST: &str = "checksums";

/// What `cksum` prints (POSIX, cksum, DESCRIPTION): a CRC of the bytes and then of their number,
/// its lowest byte first, without leading zeros.
const CKSUM: crc::Crc<u32, crc::Table<16>> =
    crc::Crc::<u32, crc::Table<16>>::new(&crc::CRC_32_CKSUM);

/// Bytes that are read at a time.
const WINDOW: usize = 1 << 18;

/// A folder compared with its list.
#[derive(Debug, Default)]
pub struct Stored {
    files: usize,
    /// Each that differs: its name, and how.
    damaged: Vec<(String, String)>,
}

impl Stored {
    /// Compares `folder` with its list, by so many threads; None if it has none.
    pub fn compare(folder: &Path, jobs: usize) -> Result<Option<Self>> {
        let list = folder.join(LIST);
        if !list.exists() {
            return Ok(None);
        }
        let text = read_text(&list)?;
        let mut files = Vec::new();
        let mut seen = FxHashSet::default();
        for line in text.lines() {
            let file = parse(line).ok_or_else(|| {
                let shown: String = line.chars().take(80).collect();
                Error::format(
                    format!("{}: a line {shown:?}", list.display()),
                    "a checksum, a number of bytes and a name, as cksum prints them",
                    "the capture is damaged: copy it again; without that file its files are not \
                     compared",
                )
            })?;
            // A list that names one file a million times would take forever.
            if seen.insert(file.2) {
                files.push(file);
            }
        }
        let found = each(&files, jobs, |&(sum, bytes, name)| {
            let differs = difference(&folder.join(name), sum, bytes)?;
            Ok(differs.map(|how| (name.to_string(), how)))
        })?;
        Ok(Some(Self {
            files: files.len(),
            damaged: found.into_iter().flatten().collect(),
        }))
    }

    /// An error that names the first file that differs.
    pub fn or_error(&self, folder: &Path) -> Result<()> {
        let Some((name, how)) = self.damaged.first() else {
            return Ok(());
        };
        let others = match self.damaged.len() - 1 {
            0 => String::new(),
            1 => ", and one more file differs".to_string(),
            more => format!(", and {more} more files differ"),
        };
        Err(Error::format(
            format!("{} {how}{others}", folder.join(name).display()),
            format!("every file as the recorder wrote it ({LIST})"),
            "the capture is damaged: copy it again, or read what is intact with -O salvage=yes",
        ))
    }

    /// `source` with what was found here among its facts and warnings.
    pub fn tell(self, source: Box<dyn Source>) -> Box<dyn Source> {
        let mut info = source.info().clone();
        let mut about: Map<String, Value> = serde_json::from_str(&info.about).unwrap_or_default();
        let names: Vec<&str> = self.damaged.iter().map(|(name, _)| name.as_str()).collect();
        about.insert(LIST.into(), json!({"files": self.files, "damaged": names}));
        info.about = Value::Object(about).to_string();
        Box::new(Told {
            source,
            info,
            warnings: self
                .damaged
                .iter()
                .map(|(name, how)| {
                    format!("{name} {how}: whatever rests on it may be wrong, unnoticed")
                })
                .collect(),
        })
    }
}

/// A line of the list; None if it is none, or names what is not in the folder.
fn parse(line: &str) -> Option<(u32, u64, &str)> {
    let mut parts = line.splitn(3, ' ');
    let sum = parts.next()?.parse().ok()?;
    let bytes = parts.next()?.parse().ok()?;
    let name = parts.next().filter(|name| !name.is_empty())?;
    let inside = |part: Component| matches!(part, Component::Normal(_));
    Path::new(name)
        .components()
        .all(inside)
        .then_some((sum, bytes, name))
}

/// How the file differs from what the list says, if it does. It may have been compressed since.
fn difference(path: &Path, sum: u32, bytes: u64) -> Result<Option<String>> {
    let mut packed = path.as_os_str().to_owned();
    packed.push(".zst");
    let packed = PathBuf::from(packed);
    let found = if path.exists() {
        of(path, open_regular(path)?)?
    } else if packed.exists() {
        let file: File = open_regular(&packed)?;
        match zstd::Decoder::new(file) {
            Ok(expanded) => match of(&packed, expanded) {
                Ok(found) => found,
                Err(error @ Error::Caller(_)) => return Err(error),
                Err(_) => return Ok(Some("does not expand".to_string())),
            },
            Err(_) => return Ok(Some("does not expand".to_string())),
        }
    } else {
        return Ok(Some("is missing".to_string()));
    };
    Ok(match found {
        (_, length) if length != bytes => Some(format!("has {length} bytes, of {bytes} recorded")),
        (found, _) if found != sum => Some(format!(
            "is not as it was recorded: its checksum is {found}, and was {sum}"
        )),
        _ => None,
    })
}

/// The checksum and the length of what there is to read.
fn of(path: &Path, mut input: impl Read) -> Result<(u32, u64)> {
    let mut digest = CKSUM.digest();
    let mut buffer = vec![0; WINDOW];
    let mut length = 0_u64;
    loop {
        match input.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => {
                digest.update(&buffer[..count]);
                length += count as u64;
                check_interrupt()?;
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Error::io(format!("read {}", path.display()), &error)),
        }
    }
    let mut rest = length;
    while rest > 0 {
        digest.update(&[(rest & 0xff) as u8]);
        rest >>= 8;
    }
    Ok((digest.finalize(), length))
}

/// A source with facts beyond those that it reports itself.
struct Told {
    source: Box<dyn Source>,
    info: SourceInfo,
    warnings: Vec<String>,
}

impl Told {
    fn warned(&self, mut end: SourceEnd) -> SourceEnd {
        end.warnings.extend(self.warnings.iter().cloned());
        end
    }
}

impl Source for Told {
    fn info(&self) -> &SourceInfo {
        &self.info
    }

    fn run(&mut self, sink: &mut dyn EventSink) -> Result<SourceEnd> {
        let end = self.source.run(sink)?;
        Ok(self.warned(end))
    }

    fn run_from(&mut self, from: i64, sink: &mut dyn EventSink) -> Result<SourceEnd> {
        let end = self.source.run_from(from, sink)?;
        Ok(self.warned(end))
    }

    fn helped_by(&mut self, chores: &Arc<Chores>) {
        self.source.helped_by(chores);
    }

    fn extents(&mut self) -> Result<Option<Vec<Extent>>> {
        self.source.extents()
    }
}
