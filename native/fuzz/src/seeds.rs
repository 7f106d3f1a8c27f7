//! Whole inputs of every format, small, from the repository's fixtures.

use std::io::Read;
use std::path::Path;

use schedscope_decode::tracedat::compression;
use schedscope_encode::synthetic::Machine;
use schedscope_encode::tracedat::{Settings, Writer};

use crate::case::{Case, Kind, Part};
use crate::{packets, records};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// KTR is printed by kernels built for it only, so this stands here: cycles, newest
/// first, as ktrdump prints them; and nanoseconds, as schedgraph.d does.
const KTRDUMP: &str = include_str!("seeds/ktrdump.txt");
const SCHEDGRAPH: &str = include_str!("seeds/schedgraph.txt");
/// The second grammar of DTrace's lines, recorded on Linux; the fixtures have the first.
const DTRACE: &str = include_str!("seeds/dtrace-2.txt");

/// Schedulers of sched_ext.
fn objects() -> Result<Vec<Case>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scx/objects");
    let mut cases = Vec::new();
    for name in [
        "fifo", "vtime", "steal", "hostile", "layers", "moves", "groups", "trees",
    ] {
        let data = std::fs::read(folder.join(format!("{name}.bpf.o")))?;
        cases.push(lone(
            crate::objects::FORMAT,
            "input.bpf.o",
            Kind::Bytes,
            data,
        ));
    }
    Ok(cases)
}

pub fn all(fixtures: &Path, scratch: &Path) -> Result<Vec<Case>> {
    let mut cases = trace_dats(scratch)?;
    cases.extend(objects()?);
    for entry in std::fs::read_dir(fixtures)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let Some((stem, extension)) = name.rsplit_once('.') else {
            continue;
        };
        match extension {
            "capture" => cases.extend(capture(&path, stem)?),
            "txt" if stem.starts_with("text-") => {
                let data = first_lines(&std::fs::read(&path)?, 60, 5);
                cases.push(lone("ftrace text", "input.txt", Kind::Text, data));
            }
            "data" => {
                let mut data = std::fs::read(&path)?;
                records::thin_out(&mut data, 40);
                cases.push(lone("perf.data", "input.data", Kind::Records, data));
            }
            "pftrace" => {
                let mut data = std::fs::read(&path)?;
                packets::thin_out(&mut data, 6);
                cases.push(lone("perfetto", "input.pftrace", Kind::Packets, data));
            }
            _ => {}
        }
    }
    for (text, options) in [
        (KTRDUMP, Vec::new()),
        (KTRDUMP, vec![("tsc_hz", "2000000000")]),
        (SCHEDGRAPH, Vec::new()),
    ] {
        let mut case = lone("KTR text", "input.ktr", Kind::Text, text.into());
        case.options = options;
        cases.push(case);
    }
    cases.push(lone("DTrace lines", "input.txt", Kind::Text, DTRACE.into()));
    // The order of a folder's files is the file system's: a seed must mean the same everywhere.
    cases.sort_by_cached_key(|case| (case.format, case.size(), case.parts[0].data.clone()));
    Ok(cases)
}

fn lone(format: &'static str, name: &str, kind: Kind, data: Vec<u8>) -> Case {
    let part = Part {
        name: name.into(),
        kind,
        data,
    };
    Case {
        format,
        folder: false,
        parts: vec![part],
        options: Vec::new(),
    }
}

/// The first lines and the last ones.
fn first_lines(data: &[u8], first: usize, last: usize) -> Vec<u8> {
    let lines: Vec<&[u8]> = data.split_inclusive(|&byte| byte == b'\n').collect();
    if lines.len() <= first + last {
        return data.to_vec();
    }
    [&lines[..first], &lines[lines.len() - last..]]
        .concat()
        .concat()
}

/// Made-up scheduling in each variant of trace.dat.
fn trace_dats(scratch: &Path) -> Result<Vec<Case>> {
    let plain = || Settings {
        version: 7,
        compression: compression::Kind::None,
        ..Settings::default()
    };
    let old = || Settings {
        version: 6,
        ..plain()
    };
    let flavours = [
        plain(),
        Settings {
            compression: compression::Kind::Zstd,
            ..plain()
        },
        Settings {
            compression: compression::Kind::Zlib,
            big_endian: true,
            long_bytes: 4,
            ..plain()
        },
        Settings {
            absolute_every: 3,
            discard_every: 5,
            ..old()
        },
        Settings {
            big_endian: true,
            buffer: "sub".into(),
            long_records: true,
            ..old()
        },
    ];
    let mut cases = Vec::new();
    for (seed, settings) in (1..).zip(flavours) {
        let path = scratch.join("seed.dat");
        let mut writer = Writer::new(&path, 2, settings)?;
        Machine::new(2, 8, seed).run(150, &mut writer)?;
        writer.finish()?;
        let data = std::fs::read(&path)?;
        let case = lone("trace.dat", "input.dat", Kind::Pages(4096), data);
        cases.push(Case {
            options: vec![("salvage", "1")],
            ..case.clone()
        });
        cases.push(case);
    }
    Ok(cases)
}

/// A capture folder, cut to few events; and its lines by themselves, where they are a format.
fn capture(path: &Path, stem: &str) -> Result<Vec<Case>> {
    let read = |name: &str| std::fs::read(path.join(name));
    let text = |name: &str, data: Vec<u8>| Part {
        name: name.into(),
        kind: Kind::Text,
        data,
    };
    // One of a series is like another.
    if stem.contains("slice") {
        return Ok(Vec::new());
    }
    let json = read("capture.json")?;
    let mut parts = vec![
        text("capture.json", json.clone()),
        text("cpus.tsv", read("cpus.tsv")?),
        text("threads.tsv", first_lines(&read("threads.tsv")?, 20, 0)),
    ];
    let mut cases = Vec::new();
    let format = if path.join("raw").exists() {
        let size = if String::from_utf8_lossy(&json).contains("\"sub_buffer_bytes\": 4096") {
            4096
        } else {
            16384
        };
        add_files(&mut parts, path, "events")?;
        add_files(&mut parts, path, "stats")?;
        for cpu in ["cpu0", "cpu1"] {
            let mut data = Vec::new();
            let file = path.join("raw").join(cpu);
            if file.exists() {
                std::fs::File::open(file)?
                    .take(2 * size as u64)
                    .read_to_end(&mut data)?;
            } else {
                zstd::Decoder::new(std::fs::File::open(file.with_extension("zst"))?)?
                    .take(2 * size as u64)
                    .read_to_end(&mut data)?;
            }
            let part = Part {
                name: format!("raw/{cpu}"),
                kind: Kind::Pages(size),
                data,
            };
            parts.insert(0, part);
        }
        "ftrace capture"
    } else {
        let data = first_lines(&read("events.txt")?, 120, 15);
        parts.insert(0, text("events.txt", data.clone()));
        if data.starts_with(b"#sched\t") {
            cases.push(lone("DTrace lines", "input.txt", Kind::Text, data));
            "DTrace capture"
        } else {
            "bpftrace capture"
        }
    };
    cases.push(Case {
        format,
        folder: true,
        parts,
        options: Vec::new(),
    });
    Ok(cases)
}

fn add_files(parts: &mut Vec<Part>, root: &Path, name: &str) -> Result<()> {
    let path = root.join(name);
    if !path.is_dir() {
        parts.push(Part {
            name: name.into(),
            kind: Kind::Text,
            data: std::fs::read(path)?,
        });
        return Ok(());
    }
    let mut names: Vec<String> = std::fs::read_dir(&path)?
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .collect();
    names.sort();
    for inner in names {
        add_files(parts, root, &format!("{name}/{inner}"))?;
    }
    Ok(())
}
