//! A finding's input made smaller: parts are left out as long as it breaks the same.

use std::path::Path;

use crate::case::{Case, Kind};
use crate::trial::{self, Finding};

/// Trials that one finding is worth.
const MOST: usize = 400;

pub fn smaller(case: &Case, found: &Finding, folder: &Path) -> std::io::Result<Case> {
    // Of slow ones few can be tried.
    let mut left = if found.signature == "slow" { 12 } else { MOST };
    let mut best = case.clone();
    let text = best.parts[0].kind == Kind::Text;
    let mut size = best.parts[0].data.len() / 2;
    while size > 0 && left > 0 {
        let mut at = 0;
        while at < best.parts[0].data.len() && left > 0 {
            let mut next = best.clone();
            let data = &mut next.parts[0].data;
            let end = (at + size).min(data.len());
            let (begin, end) = if text {
                (line_end(data, at), line_end(data, end))
            } else {
                (at, end)
            };
            if begin == end {
                at += size;
                continue;
            }
            data.drain(begin..end);
            left -= 1;
            let path = next.write(folder)?;
            match trial::run(&next, &path) {
                Err(again) if again.signature == found.signature => best = next,
                _ => at += size,
            }
        }
        size /= 2;
    }
    best.write(folder)?;
    Ok(best)
}

/// The next start of a line at or after `at`.
fn line_end(data: &[u8], at: usize) -> usize {
    if at == 0 || at >= data.len() {
        return at.min(data.len());
    }
    let rest = data[at..].iter().position(|&byte| byte == b'\n');
    rest.map_or(data.len(), |length| at + length + 1)
}
