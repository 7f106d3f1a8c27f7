//! Event format descriptions: the kernel's own text of each event's layout
//! (`events/<system>/<event>/format`, `events/header_page`).

use std::fmt::Display;

use crate::error::{Error, Result};

/// How a field's bytes are to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// A number, or anything else that stands in place.
    Plain,
    /// An array that stands in place (`char comm[16]`).
    Array,
    /// `__data_loc`: 16 bits of offset from the record's start, 16 of length.
    DataLoc,
    /// `__rel_loc`: the same, the offset counted from the field's own end.
    RelLoc,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    pub name: String,
    pub offset: usize,
    pub size: usize,
    pub signed: bool,
    pub shape: Shape,
}

/// One event's layout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventFormat {
    pub name: String,
    pub id: u16,
    pub fields: Vec<Field>,
    pub print_fmt: String,
}

impl EventFormat {
    /// Reads a `format` file. `place` names it in errors.
    pub fn parse(text: &str, place: impl Display + Copy) -> Result<Self> {
        let (name, id) = name_and_id(text, place)?;
        let mut fields = Vec::new();
        let mut print_fmt = "";
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("print fmt:") {
                print_fmt = rest.trim();
            } else if let Some(field) = Field::parse(line) {
                fields.push(field);
            }
        }
        Ok(Self {
            name: name.to_string(),
            id,
            fields,
            print_fmt: print_fmt.to_string(),
        })
    }

    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|field| field.name == name)
    }
}

/// The first lines of a `format` file, which are all that counting needs: a
/// trace describes some 2,000 events and records a dozen.
pub fn name_and_id(text: &str, place: impl Display) -> Result<(&str, u16)> {
    let mut name = None;
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("name:") {
            name = Some(rest.trim()).filter(|name| !name.is_empty());
        } else if let Some(rest) = line.strip_prefix("ID:") {
            if let (Some(name), Ok(id)) = (name, rest.trim().parse()) {
                return Ok((name, id));
            }
            break;
        }
    }
    Err(Error::format(
        format!("{place}: an event format without a name or an ID below 65536"),
        "the kernel's text: `name: ...`, `ID: ...`, then a line per field",
        "record the trace again",
    ))
}

impl Field {
    /// Reads `field:char comm[16]; offset:8; size:16; signed:0;`; None if the
    /// line is no field. Kernels before 2.6.32 print no `signed`.
    fn parse(line: &str) -> Option<Self> {
        let rest = line.trim_start().strip_prefix("field:")?;
        let mut parts = rest.split(';').map(str::trim);
        let declaration = parts.next()?;
        let (mut offset, mut size, mut signed) = (None, None, false);
        for part in parts {
            if let Some((key, value)) = part.split_once(':') {
                match key.trim() {
                    "offset" => offset = value.trim().parse().ok(),
                    "size" => size = value.trim().parse().ok(),
                    "signed" => signed = value.trim() == "1",
                    _ => {}
                }
            }
        }
        let shape = if declaration.starts_with("__data_loc") {
            Shape::DataLoc
        } else if declaration.starts_with("__rel_loc") {
            Shape::RelLoc
        } else if declaration.contains('[') {
            Shape::Array
        } else {
            Shape::Plain
        };
        let last = declaration.rsplit(char::is_whitespace).next()?;
        let name = last.split('[').next()?.trim_start_matches('*');
        // Offsets beyond any record would only overflow later sums.
        let offset = offset.filter(|&offset: &usize| offset < 1 << 24)?;
        let size = size.filter(|&size: &usize| size < 1 << 24)?;
        Some(Self {
            name: name.to_string(),
            offset,
            size,
            signed,
            shape,
        })
    }
}

/// Where the parts of a ring-buffer sub-buffer stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageLayout {
    pub timestamp: usize,
    pub commit: usize,
    /// 4 or 8: the kernel's `long`, which the file header's long size need not be.
    pub commit_size: usize,
    pub data: usize,
    /// Bytes of a whole sub-buffer, header included.
    pub bytes: usize,
}

impl PageLayout {
    /// Reads `events/header_page`. Without one (kernels before 2.6.31), the
    /// layout follows from the long size and the page size.
    pub fn parse(text: &str, place: &str, long_bytes: usize, page_bytes: usize) -> Result<Self> {
        let fields: Vec<Field> = text.lines().filter_map(Field::parse).collect();
        let find = |name: &str| fields.iter().find(|field| field.name == name);
        let layout = if text.trim().is_empty() {
            Self {
                timestamp: 0,
                commit: 8,
                commit_size: long_bytes,
                data: 8 + long_bytes,
                bytes: page_bytes,
            }
        } else {
            match (find("timestamp"), find("commit"), find("data")) {
                (Some(timestamp), Some(commit), Some(data)) if timestamp.size == 8 => Self {
                    timestamp: timestamp.offset,
                    commit: commit.offset,
                    commit_size: commit.size,
                    data: data.offset,
                    bytes: data.offset + data.size,
                },
                _ => {
                    return Err(Error::format(
                        format!("{place} does not describe timestamp, commit and data"),
                        "the kernel's text of events/header_page",
                        "record the trace again",
                    ));
                }
            }
        };
        layout.check(place)
    }

    /// The same layout in sub-buffers of another size.
    pub fn with_bytes(self, bytes: usize, place: &str) -> Result<Self> {
        Self { bytes, ..self }.check(place)
    }

    fn check(self, place: &str) -> Result<Self> {
        let header = (self.timestamp + 8).max(self.commit + self.commit_size);
        let sane = matches!(self.commit_size, 4 | 8)
            && header <= self.data
            && self.data < self.bytes
            && (64..=MAX_PAGE).contains(&self.bytes);
        if sane {
            return Ok(self);
        }
        Err(Error::format(
            format!(
                "{place}: sub-buffers of {} bytes with a {}-byte commit at {} and data at {}",
                self.bytes, self.commit_size, self.commit, self.data
            ),
            format!("a commit of 4 or 8 bytes, before the data, in 64 to {MAX_PAGE} bytes"),
            "the file is damaged: copy or record it again",
        ))
    }
}

/// The kernel allows sub-buffers up to the largest page order; 128 MiB is
/// beyond what any can allocate in one piece.
const MAX_PAGE: usize = 16 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_read_whatever_its_declaration() {
        let field = |line| Field::parse(line).unwrap();
        let comm = field("\tfield:char prev_comm[16];\toffset:8;\tsize:16;\tsigned:0;");
        assert_eq!(
            (comm.name.as_str(), comm.offset, comm.size, comm.shape),
            ("prev_comm", 8, 16, Shape::Array)
        );
        let loc = field("\tfield:__data_loc char[] filename;\toffset:8;\tsize:4;\tsigned:0;");
        assert_eq!((loc.name.as_str(), loc.shape), ("filename", Shape::DataLoc));
        let rel = field("\tfield:__rel_loc char[] comm;\toffset:8;\tsize:4;\tsigned:0;");
        assert_eq!(rel.shape, Shape::RelLoc);
        let pid = field("\tfield:pid_t prev_pid;\toffset:24;\tsize:4;\tsigned:1;");
        assert!(pid.signed);
        let old = field("\tfield:unsigned char common_flags;\toffset:2;\tsize:1;");
        assert_eq!((old.name.as_str(), old.signed), ("common_flags", false));
        let pointer = field("\tfield:const char *fmt;\toffset:8;\tsize:8;\tsigned:0;");
        assert_eq!(pointer.name, "fmt");
        assert!(Field::parse("print fmt: \"field:%d\"").is_none());
    }

    #[test]
    fn header_page_gives_the_layout_of_32_and_64_bit_kernels() {
        let text = "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\
                    \tfield: local_t commit;\toffset:8;\tsize:4;\tsigned:1;\n\
                    \tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;\n\
                    \tfield: char data;\toffset:12;\tsize:4084;\tsigned:0;\n";
        let layout = PageLayout::parse(text, "header_page", 8, 4096).unwrap();
        assert_eq!(
            layout,
            PageLayout {
                timestamp: 0,
                commit: 8,
                commit_size: 4,
                data: 12,
                bytes: 4096
            }
        );
        assert_eq!(layout.with_bytes(65536, "x").unwrap().bytes, 65536);
        assert!(layout.with_bytes(8, "x").is_err());
        let old = PageLayout::parse("", "header_page", 4, 8192).unwrap();
        assert_eq!((old.commit_size, old.data, old.bytes), (4, 12, 8192));
    }
}
