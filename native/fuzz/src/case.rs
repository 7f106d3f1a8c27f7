//! One input: a file, or a capture folder, of some format.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

use crate::chance::Chance;
use crate::{bytes, lines, packets, pages, records};

/// What a file is made of, and so how it is injured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Text,
    /// trace.dat, or sub-buffers of so many bytes alone.
    Pages(usize),
    Records,
    Packets,
    /// Of whatever it is made of nothing is known.
    Bytes,
}

#[derive(Debug, Clone)]
pub struct Part {
    /// Path within the folder; of a lone file, its name.
    pub name: String,
    pub kind: Kind,
    pub data: Vec<u8>,
}

thread_local! {
    /// What stands in which file: of a folder's fifty files few change.
    static WRITTEN: RefCell<HashMap<PathBuf, Vec<u8>>> = RefCell::default();
}

#[derive(Debug, Clone)]
pub struct Case {
    pub format: &'static str,
    pub folder: bool,
    /// The first part holds the events.
    pub parts: Vec<Part>,
    pub options: Vec<(&'static str, &'static str)>,
}

impl Case {
    pub fn size(&self) -> usize {
        self.parts.iter().map(|part| part.data.len()).sum()
    }

    /// One to eight injuries, most of them where the events are.
    pub fn injure(&mut self, chance: &mut Chance) {
        for _ in 0..*chance.of(&[1, 1, 1, 2, 3, 8]) {
            let at = if chance.once_in(8) {
                chance.below(self.parts.len())
            } else {
                0
            };
            let Part { kind, data, .. } = &mut self.parts[at];
            if data.is_empty() || chance.once_in(4) {
                bytes::injure(data, chance);
                continue;
            }
            match *kind {
                Kind::Text => lines::injure(data, chance),
                Kind::Pages(size) => pages::injure(data, size, chance),
                Kind::Records => records::injure(data, chance),
                Kind::Packets => packets::injure(data, chance),
                Kind::Bytes => bytes::injure(data, chance),
            }
        }
    }

    /// Writes it below `folder`; returns what to open.
    pub fn write(&self, folder: &Path) -> std::io::Result<PathBuf> {
        let root = if self.folder {
            folder.join("input.capture")
        } else {
            folder.to_path_buf()
        };
        for part in &self.parts {
            let path = root.join(&part.name);
            let there = WRITTEN.with_borrow(|all| all.get(&path) == Some(&part.data));
            if there {
                continue;
            }
            if let Some(parent) = path.parent() {
                std::fs::create_dir_all(parent)?;
            }
            std::fs::write(&path, &part.data)?;
            WRITTEN.with_borrow_mut(|all| all.insert(path, part.data.clone()));
        }
        Ok(if self.folder {
            root
        } else {
            root.join(&self.parts[0].name)
        })
    }
}
