//! The messages of schedulers (`bpf_bstr_printf`: the conversions that schedulers use).
use super::fault::Fault;
use super::memory::Memory;

/// `data` has a word for each conversion.
pub fn formatted(m: &Memory, format: u64, data: u64, size: u64) -> Result<String, Fault> {
    let format = m.text(format)?;
    let mut words = (0..size / 8).map(|i| m.load(data.wrapping_add(8 * i), 8));
    let mut said = String::new();
    let mut rest = format.chars().peekable();
    while let Some(letter) = rest.next() {
        if letter != '%' {
            said.push(letter);
            continue;
        }
        while rest
            .next_if(|c| matches!(c, '0'..='9' | '-' | '#' | '.' | 'l' | 'h' | 'z'))
            .is_some()
        {}
        let Some(kind) = rest.next() else { break };
        if kind == '%' {
            said.push('%');
            continue;
        }
        let Some(word) = words.next().transpose()? else {
            said.push('?');
            continue;
        };
        match kind {
            's' => said.push_str(&m.text(word).unwrap_or_else(|_| "?".into())),
            'd' | 'i' => said.push_str(&(word as i64).to_string()),
            'u' => said.push_str(&word.to_string()),
            'x' | 'X' | 'p' => said.push_str(&format!("{word:x}")),
            'c' => said.push(char::from(word as u8)),
            _ => said.push('?'),
        }
        if said.len() > 1024 {
            break;
        }
    }
    Ok(said
        .chars()
        .take(1024)
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect())
}
