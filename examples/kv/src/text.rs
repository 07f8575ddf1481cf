//! Numbers and bytes for people and for scripts.

use std::time::Duration;

use serde_json::Value;

/// A number with a comma between groups of three digits.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// How many of a thing, such as `1 file` or `1,000 files`.
pub(crate) fn counted(number: u64, thing: &str) -> String {
    format!("{} {thing}{}", grouped(number), if number == 1 { "" } else { "s" })
}

/// Seconds to the millisecond: more digits are no more truth, and hard to read.
pub(crate) fn milliseconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e3).round() / 1e3
}

/// Bytes for a terminal: text as it is, but for line ends and other control characters, and for what is no
/// text.
pub(crate) fn shown(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let escaped = |c: char| -> String {
        if c.is_control() { c.escape_default().collect() } else { c.into() }
    };
    text.chars().map(escaped).collect()
}

/// How many bytes of a key are shown where its length must not decide that of a sentence.
const ABRIDGED_BYTES: usize = 100;

/// A key in a sentence: as [`shown`], cut where it is long.
pub(crate) fn abridged(key: &[u8]) -> String {
    match key.get(..ABRIDGED_BYTES) {
        Some(begin) if key.len() > begin.len() => {
            format!("{}… ({} bytes)", shown(begin), grouped(key.len() as u64))
        }
        _ => shown(key),
    }
}

/// Bytes as hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |nibble: u8| char::from(DIGITS[usize::from(nibble & 15)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(*byte)]).collect()
}

/// The bytes of hexadecimal digits.
pub(crate) fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let pairs = text.as_bytes().chunks(2);
    let byte = |pair: &[u8]| match pair {
        [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
        _ => None,
    };
    pairs.map(byte).collect()
}

/// Puts bytes into a JSON object: as a string under `name` if they are UTF-8, otherwise as hexadecimal
/// digits under `name_hex`.
pub(crate) fn set_bytes(object: &mut Value, name: &str, bytes: &[u8]) {
    match std::str::from_utf8(bytes) {
        Ok(text) => object[name] = text.into(),
        Err(_) => object[format!("{name}_hex")] = hex(bytes).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thing_has_no_plural_and_seconds_have_three_digits() {
        assert_eq!(counted(1, "file"), "1 file");
        assert_eq!(counted(0, "file"), "0 files");
        assert_eq!(counted(1_000, "file"), "1,000 files");
        assert_eq!(milliseconds(Duration::from_nanos(1_322_027_025)), 1.322);
    }

    #[test]
    fn numbers_are_grouped_by_thousands() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1_000), "1,000");
        assert_eq!(grouped(67_108_864), "67,108,864");
    }

    #[test]
    fn no_name_can_end_a_line_or_command_a_terminal() {
        assert_eq!(shown(b"a\n\x1b[2Jb\xff"), "a\\n\\u{1b}[2Jb\u{fffd}");
        assert_eq!(shown("Füße".as_bytes()), "Füße");
    }

    #[test]
    fn bytes_are_digits_and_digits_are_bytes() {
        assert_eq!(hex(b"\x00\xff\x1a"), "00ff1a");
        assert_eq!(unhex("00ff1a").as_deref(), Some(&b"\x00\xff\x1a"[..]));
        assert_eq!(unhex(""), Some(Vec::new()));
        assert_eq!(unhex("abc"), None);
        assert_eq!(unhex("zz"), None);
    }

    #[test]
    fn bytes_that_are_no_text_are_told_apart_in_json() {
        let mut object = serde_json::json!({});
        set_bytes(&mut object, "key", b"text");
        set_bytes(&mut object, "value", b"\xff");
        assert_eq!(object, serde_json::json!({"key": "text", "value_hex": "ff"}));
    }
}
