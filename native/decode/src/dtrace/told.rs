//! Facts about threads in lines of version 2 beside events: nice values (`N`) and the kernel's own
//! sums of running and sleeping (`V`), from which ULE's score follows.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::compact::Words;

/// Nice values are printed 20 higher, so that none is negative.
const NICE_ZERO: i64 = 20;
/// kern.sched.interact where the capture does not have it.
const INTERACT: i64 = 30;
const HALF: i64 = 50;

#[derive(Debug, Default)]
pub struct Told {
    /// By tid: the first nice value, and the last.
    nice: BTreeMap<u32, (i64, i64)>,
    changes: Vec<(i64, u32, i64)>,
    scores: BTreeMap<u32, Scores>,
    /// kern.sched.interact, if the capture has it.
    pub interact: Option<i64>,
}

/// What `interactivity` says of a thread, by the kernel's values at each of its switches.
#[derive(Debug)]
struct Scores {
    n: u64,
    began: i64,
    /// The two sums at that instant, in ticks of hz, times 1024.
    ran: i64,
    slept: i64,
    ts: i64,
    score: i64,
    least: i64,
    most: i64,
    is: bool,
    since: Option<i64>,
    interactive: i64,
    transitions: u64,
}

/// sched_interact_score() of sched_ule.c, 13 and 14, with a threshold of at most 50.
fn score(ran: i64, slept: i64) -> i64 {
    if slept > ran {
        ran / (slept / HALF).max(1)
    } else if ran > 0 {
        HALF
    } else {
        0
    }
}

impl Told {
    /// A line whose other fields begin at `at`.
    pub fn line(&mut self, letter: u8, ts: i64, bytes: &[u8], at: usize) -> Option<()> {
        let mut words = Words::new(bytes, at);
        let tid = words.small()?;
        if letter == b'V' {
            let [ran, slept] = words.ints()?;
            let nice = self.nice.get(&tid).map_or(0, |&(_, last)| last);
            let score = (score(ran, slept) + nice).max(0);
            let is = score < self.interact.unwrap_or(INTERACT);
            let known = self.scores.entry(tid).or_insert(Scores {
                n: 0,
                began: ts,
                ran,
                slept,
                ts,
                score,
                least: score,
                most: score,
                is: false,
                since: None,
                interactive: 0,
                transitions: 0,
            });
            known.update(ts, score, is);
            return Some(());
        }
        let (_pid, _class, _kind) = (words.int()?, words.int()?, words.int()?);
        let nice = words.int()? - NICE_ZERO;
        let known = self.nice.entry(tid).or_insert((nice, nice));
        if known.1 != nice {
            known.1 = nice;
            self.changes.push((ts, tid, nice));
        }
        Some(())
    }

    /// Adds it to what is known of the recording.
    pub fn add_to(&self, about: &mut Value) {
        let mut nice: BTreeMap<u64, i64> = about
            .get("nice")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(|row| Some((row.get("tid")?.as_u64()?, row.get("nice")?.as_i64()?)))
            .collect();
        nice.extend(
            self.nice
                .iter()
                .map(|(&tid, &(first, _))| (u64::from(tid), first)),
        );
        nice.retain(|_, nice| *nice != 0);
        let rows = [
            (
                "nice",
                nice.iter()
                    .map(|(tid, nice)| json!({"tid": tid, "nice": nice}))
                    .collect(),
            ),
            (
                "nice_changes",
                self.changes
                    .iter()
                    .map(|(ts, tid, nice)| json!({"ts": ts, "tid": tid, "nice": nice}))
                    .collect(),
            ),
            (
                "kernel_scores",
                self.scores
                    .iter()
                    .map(|(&tid, scores)| scores.told(tid))
                    .collect::<Vec<Value>>(),
            ),
        ];
        for (name, rows) in rows {
            if let Some(about) = about.as_object_mut()
                && (!rows.is_empty() || about.contains_key(name))
            {
                about.insert(name.into(), Value::from(rows));
            }
        }
    }
}

impl Scores {
    fn update(&mut self, ts: i64, score: i64, is: bool) {
        if self.is {
            self.interactive += ts - self.ts;
        }
        self.transitions += u64::from(self.is != is);
        if is {
            self.since.get_or_insert(ts);
        }
        self.n += 1;
        (self.ts, self.score, self.is) = (ts, score, is);
        (self.least, self.most) = (self.least.min(score), self.most.max(score));
    }

    fn told(&self, tid: u32) -> Value {
        json!({
            "tid": tid,
            "n": self.n,
            "score": self.score,
            "score_min": self.least,
            "score_max": self.most,
            "is_interactive": self.is,
            "ts_interactive": self.since,
            "interactive": self.interactive,
            "observed": self.ts - self.began,
            "ts_first": self.began,
            "ran_first": self.ran,
            "slept_first": self.slept,
            "transitions": self.transitions,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_score_is_the_share_of_running_up_to_a_half() {
        assert_eq!((score(0, 0), score(10, 0), score(100, 100)), (0, 50, 50));
        assert_eq!((score(10, 100), score(39_000, 50_000)), (5, 39));
    }

    #[test]
    fn a_changed_nice_value_is_told_with_its_time() {
        let mut told = Told::default();
        for (ts, nice) in [(1, 20), (2, 20), (3, 30)] {
            let line = format!(" 100402 1190 3 0 {nice} 4 make\n");
            told.line(b'N', ts, line.as_bytes(), 0).unwrap();
        }
        let mut about = json!({"nice": [{"tid": 100402, "nice": 5}, {"tid": 7, "nice": 1}]});
        told.add_to(&mut about);
        assert_eq!(about["nice"], json!([{"tid": 7, "nice": 1}]));
        assert_eq!(
            about["nice_changes"],
            json!([{"ts": 3, "tid": 100402, "nice": 10}])
        );
    }
}
