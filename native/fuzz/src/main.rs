//! Fuzzer of every decoder, and of sched_ext objects: damaged inputs must be read or refused in one sentence,
//! in order, in time, in bounded memory, without a panic and without a wrong sum.
//!
//! ```text
//! cargo run --profile quick -p schedscope-fuzz -- --seconds 60 [--seed N]
//!     [--only FORMAT] [--findings DIR] [--replay PATH]
//! ```
//!
//! The inputs are whole ones (`seeds`), injured by what knows their records (`lines`,
//! `pages`, `records`, `packets`) and by what does not (`bytes`). The work is done in a
//! child with limited address space: a number that is believed where memory is
//! reserved ends the child, and the parent keeps its last input.

mod bytes;
mod case;
mod chance;
mod lines;
mod minimise;
mod objects;
mod packets;
mod pages;
mod records;
mod seeds;
mod trial;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use case::Case;
use chance::Chance;
use trial::{Finding, Outcome};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Address space of the child: what is reserved shows even where it is not touched.
const SPACE_KIB: u64 = 2 << 20;
/// An input that takes longer ends the child.
const HANG: Duration = Duration::from_secs(60);

struct Settings {
    seconds: f64,
    seed: u64,
    only: Option<String>,
    findings: PathBuf,
    fixtures: PathBuf,
    replay: Option<PathBuf>,
    /// Set in the child: where it writes its inputs.
    child: Option<PathBuf>,
}

fn settings() -> Result<Settings> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut settings = Settings {
        seconds: 60.0,
        seed: 1,
        only: None,
        findings: "fuzz-findings".into(),
        fixtures: here.join("../../fixtures"),
        replay: None,
        child: None,
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let value = words
            .next()
            .ok_or_else(|| format!("{word} wants a value"))?;
        match word.as_str() {
            "--seconds" => settings.seconds = value.parse()?,
            "--seed" => settings.seed = value.parse()?,
            "--only" => settings.only = Some(value),
            "--findings" => settings.findings = value.into(),
            "--fixtures" => settings.fixtures = value.into(),
            "--replay" => settings.replay = Some(value.into()),
            "--child" => settings.child = Some(value.into()),
            _ => return Err(format!("no option {word}").into()),
        }
    }
    Ok(settings)
}

fn main() -> ExitCode {
    let done = settings().and_then(|settings| match (&settings.replay, &settings.child) {
        (Some(path), _) => replay(path),
        (None, Some(folder)) => child(&settings, folder).map(|()| true),
        (None, None) => parent(&settings),
    });
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("fuzz: {error}");
            ExitCode::from(2)
        }
    }
}

/// One kept input again.
fn replay(path: &Path) -> Result<bool> {
    let size = |path: &Path| path.metadata().map_or(0, |meta| meta.len());
    let data = vec![0; size(path) as usize];
    let part = case::Part {
        name: String::new(),
        kind: case::Kind::Text,
        data,
    };
    let case = Case {
        format: "",
        folder: path.is_dir(),
        parts: vec![part],
        options: Vec::new(),
    };
    trial::keep_panics();
    match trial::run(&case, path) {
        Ok(Outcome::Read) => println!("{}: read", path.display()),
        Ok(Outcome::Refused) => println!("{}: refused", path.display()),
        Err(Finding { signature, details }) => {
            println!("{}: {signature}: {details}", path.display());
            return Ok(false);
        }
    }
    Ok(true)
}

/// Starts children, one after the other, until the time is over. True: nothing broke.
fn parent(settings: &Settings) -> Result<bool> {
    let begin = Instant::now();
    let memory = Path::new("/dev/shm");
    let root = if memory.is_dir() {
        memory.to_path_buf()
    } else {
        std::env::temp_dir()
    };
    let folder = root.join(format!("schedscope-fuzz-{}", std::process::id()));
    let mut totals: BTreeMap<String, [u64; 2]> = BTreeMap::new();
    let mut found = 0u64;
    let mut seed = settings.seed;
    while begin.elapsed().as_secs_f64() < settings.seconds {
        std::fs::create_dir_all(&folder)?;
        let left = settings.seconds - begin.elapsed().as_secs_f64();
        let mut words = vec![
            ("--seconds", left.to_string()),
            ("--seed", seed.to_string()),
            ("--findings", settings.findings.display().to_string()),
            ("--fixtures", settings.fixtures.display().to_string()),
            ("--child", folder.display().to_string()),
        ];
        words.extend(settings.only.clone().map(|only| ("--only", only)));
        let done = Command::new("sh")
            .arg("-c")
            .arg(format!("ulimit -v {SPACE_KIB} && exec \"$0\" \"$@\""))
            .arg(std::env::current_exe()?)
            .args(
                words
                    .iter()
                    .flat_map(|(word, value)| [*word, value.as_str()]),
            )
            // What is expanded to disk stays in memory, too.
            .env("TMPDIR", &folder)
            .output()?;
        for line in String::from_utf8_lossy(&done.stdout).lines() {
            let mut fields = line.split('\t');
            match (fields.next(), fields.next(), fields.next(), fields.next()) {
                (Some("tried"), Some(format), Some(read), Some(refused)) => {
                    let total = totals.entry(format.into()).or_default();
                    total[0] += read.parse::<u64>()?;
                    total[1] += refused.parse::<u64>()?;
                }
                (Some("found"), ..) => {
                    found += 1;
                    eprintln!("{line}");
                }
                _ => {}
            }
        }
        if !done.status.success() {
            let said = String::from_utf8_lossy(&done.stderr);
            if done.status.code() == Some(2) {
                return Err(said.into_owned().into());
            }
            found += 1;
            let kept = settings.findings.join(format!("ended-{seed}"));
            keep_folder(&folder, &kept)?;
            eprintln!(
                "found\tended\t{}\t{} {}",
                kept.display(),
                done.status,
                said.lines().next_back().unwrap_or_default()
            );
        }
        std::fs::remove_dir_all(&folder)?;
        seed = seed.wrapping_add(1_000_003);
    }
    let (mut read, mut refused) = (0, 0);
    for (format, [good, bad]) in &totals {
        println!("{format:18} {good:>10} read {bad:>10} refused");
        (read, refused) = (read + good, refused + bad);
    }
    println!(
        "seed {}: {} damaged inputs in {:.0} s ({read} read, {refused} refused), {found} findings",
        settings.seed,
        read + refused,
        begin.elapsed().as_secs_f64(),
    );
    Ok(found == 0)
}

fn keep_folder(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let path = entry?.path();
        let target = to.join(path.file_name().unwrap_or_default());
        if path.is_dir() {
            keep_folder(&path, &target)?;
        } else {
            std::fs::copy(&path, target)?;
        }
    }
    Ok(())
}

/// Mutates and tries until the time is over; reports its numbers now and then.
fn child(settings: &Settings, folder: &Path) -> Result<()> {
    let end = Instant::now() + Duration::from_secs_f64(settings.seconds);
    let mut seeds = seeds::all(&settings.fixtures, folder)?;
    if let Some(only) = &settings.only {
        seeds.retain(|case| case.format == only);
    }
    let formats: Vec<&str> = seeds.iter().map(|case| case.format).collect();
    let mut formats = formats;
    formats.dedup();
    if formats.is_empty() {
        return Err("no seed of that format".into());
    }
    for case in &seeds {
        let path = case.write(&folder.join("seed"))?;
        match trial::run(case, &path) {
            Ok(Outcome::Read) => {}
            Ok(Outcome::Refused) => {
                return Err(format!("a seed of {} is refused: {path:?}", case.format).into());
            }
            Err(found) => {
                return Err(format!("a seed of {} breaks: {}", case.format, found.details).into());
            }
        }
    }
    trial::keep_panics();
    watch();
    let mut chance = Chance::new(settings.seed);
    let mut counts: BTreeMap<&str, [u64; 2]> = BTreeMap::new();
    let mut signatures = BTreeMap::new();
    let mut told = Instant::now();
    while Instant::now() < end {
        // Every format gets the same share, however many seeds it has.
        let format = *chance.of(&formats);
        let of_format: Vec<&Case> = seeds.iter().filter(|case| case.format == format).collect();
        let mut case = (*chance.of(&of_format)).clone();
        case.injure(&mut chance);
        // What another format's folder holds must not be found in this one's.
        let folder = &folder.join(format.replace(' ', "-"));
        std::fs::create_dir_all(folder)?;
        let path = case.write(folder)?;
        TRIED.fetch_add(1, Ordering::Relaxed);
        let count = counts.entry(format).or_default();
        match trial::run(&case, &path) {
            Ok(Outcome::Read) => count[0] += 1,
            Ok(Outcome::Refused) => count[1] += 1,
            Err(found) => {
                count[0] += 1;
                let name = format!("{}-{}", format.replace(' ', "-"), found.signature);
                let seen = signatures.entry(name.clone()).or_insert(0u64);
                *seen += 1;
                if *seen == 1 {
                    TRIED.fetch_add(1, Ordering::Relaxed);
                    let small = minimise::smaller(&case, &found, folder)?;
                    let kept = settings.findings.join(&name);
                    if !kept.exists() {
                        small.write(&kept)?;
                        std::fs::write(kept.join("finding.txt"), &found.details)?;
                    }
                    println!("found\t{name}\t{}", found.details.replace('\n', " "));
                }
            }
        }
        if told.elapsed() > Duration::from_secs(10) {
            told = Instant::now();
            tell(&mut counts);
        }
    }
    tell(&mut counts);
    for (name, times) in signatures {
        println!("found {times} times: {name}");
    }
    Ok(())
}

fn tell(counts: &mut BTreeMap<&str, [u64; 2]>) {
    for (format, [read, refused]) in std::mem::take(counts) {
        println!("tried\t{format}\t{read}\t{refused}");
    }
}

/// Inputs started.
static TRIED: AtomicU64 = AtomicU64::new(0);

/// Ends the process if one input takes too long.
fn watch() {
    std::thread::spawn(|| {
        let mut before = (u64::MAX, Instant::now());
        loop {
            std::thread::sleep(Duration::from_secs(1));
            let tried = TRIED.load(Ordering::Relaxed);
            if tried != before.0 {
                before = (tried, Instant::now());
            } else if before.1.elapsed() > HANG {
                eprintln!("one input took longer than {} s", HANG.as_secs());
                std::process::exit(3);
            }
        }
    });
}
