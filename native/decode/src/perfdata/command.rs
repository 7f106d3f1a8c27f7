//! What perf's command line says of the threads that it recorded.

/// Options that leave out events, with a value or without.
const FILTERS: [&str; 6] = [
    "--filter",
    "--exclude-perf",
    "--uid",
    "-u",
    "--cgroup",
    "-G",
];

/// Options that name programs or threads.
const TARGETS: [&str; 4] = ["--pid", "-p", "--tid", "-t"];

/// perf's own options: those of the recorded program stand behind `--`, or its name.
fn options(command: &[String]) -> impl Iterator<Item = (usize, &str)> {
    let words = command.iter().map(String::as_str).enumerate().skip(1);
    words.take_while(|(_, word)| *word != "--")
}

/// All threads of some CPUs were recorded, not those of one program.
///
/// The events alone do not show it: perf 6.1 opens them with `inherit` either way, 7.2 does not.
pub fn is_system_wide(command: &[String]) -> bool {
    let all = |word: &str| {
        let long = word.starts_with("--all-cpus") || word.starts_with("--cpu");
        let short = word
            .strip_prefix('-')
            .filter(|flags| flags.bytes().all(|flag| flag.is_ascii_alphabetic()));
        long || word.starts_with("-C") || short.is_some_and(|flags| flags.contains('a'))
    };
    // `perf sched record` adds -a by itself.
    command.get(1).is_some_and(|word| word == "sched") || options(command).any(|(_, w)| all(w))
}

/// The options that leave out events of some threads, with their values.
pub fn filters(command: &[String]) -> Vec<String> {
    named(command, &FILTERS, |at| concerns_threads(command, at))
}

/// A `--filter` is of the event named before it: one of a timer leaves out no thread.
fn concerns_threads(command: &[String], at: usize) -> bool {
    let events = options(command).take_while(|(place, _)| *place < at);
    let values = events.filter_map(|(place, word)| match word {
        "-e" | "--event" => command.get(place + 1).map(String::as_str),
        _ => word.strip_prefix("--event="),
    });
    let last = values.last();
    !command[at].starts_with("--filter")
        || last.is_none_or(|events| events.contains("sched") || events.contains('*'))
}

/// The options that name the programs or threads that were recorded, with their values.
pub fn targets(command: &[String]) -> Vec<String> {
    named(command, &TARGETS, |_| true)
}

/// `perf inject -s`: its file has, instead of each sample of a sleep that ended, the switch with
/// which it began, at the time of its end.
pub fn moves_switches(command: &[String]) -> bool {
    let merges = |word: &str| {
        let flags = word
            .strip_prefix('-')
            .unwrap_or("")
            .split(['i', 'o', 'k'])
            .next();
        word == "--sched-stat"
            || flags.is_some_and(|flags| !flags.starts_with('-') && flags.contains('s'))
    };
    command.get(1).is_some_and(|word| word == "inject") && options(command).any(|(_, w)| merges(w))
}

fn named(command: &[String], names: &[&str], counts: impl Fn(usize) -> bool) -> Vec<String> {
    let name = |word: &str| word.split('=').next().unwrap_or(word).to_owned();
    let found =
        options(command).filter(|(at, word)| names.contains(&name(word).as_str()) && counts(*at));
    let with_value = |(at, word): (usize, &str)| match command.get(at + 1) {
        Some(value) if !word.contains('=') && word != "--exclude-perf" => {
            format!("{word} '{value}'")
        }
        _ => word.to_owned(),
    };
    found.map(with_value).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn what_a_command_line_leaves_out() {
        let line =
            words("perf record -a -e sched:sched_switch --filter prev_pid==7 -- x --filter y");
        assert_eq!(filters(&line), ["--filter 'prev_pid==7'"]);
        assert!(is_system_wide(&line) && targets(&line).is_empty());
        let timer = "perf record -a -e sched:sched_switch -e timer:hrtimer_expire_entry --filter x";
        assert!(filters(&words(timer)).is_empty());
        let line = words("perf record -e sched:* --exclude-perf --pid=7 -t 8");
        assert_eq!(filters(&line), ["--exclude-perf"]);
        assert_eq!(targets(&line), ["--pid=7", "-t '8'"]);
        assert!(!is_system_wide(&line));
        assert!(is_system_wide(&words("perf sched record sleep 1")));
    }

    #[test]
    fn perf_inject_moves_switches_with_its_option_s_alone() {
        for line in [
            "inject -s -i a",
            "inject -vsi a",
            "inject --sched-stat -i a -o s",
        ] {
            assert!(moves_switches(&words(&format!("perf {line}"))), "{line}");
        }
        for line in [
            "inject -b -i switches",
            "inject -iss -oss",
            "record -s sleep 1",
            "inject --strip",
        ] {
            assert!(!moves_switches(&words(&format!("perf {line}"))), "{line}");
        }
    }
}
