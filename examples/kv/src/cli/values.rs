use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt;
use std::time::Duration;

use clap::builder::{EnumValueParser, PossibleValue, TypedValueParser};
use clap::{Arg, Command, ValueEnum};
use rpc_core::cm::{Address, AddressError};

use crate::bench::mix::Mix;
use crate::limits::VALUE_BYTES_MAX;

/// A number of bytes: digits, and a unit of 1,000 (kB, MB, GB) or 1,024 (KiB, MiB, GiB) if wanted.
pub(super) fn byte_count(text: &str) -> Result<u64, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let unit: u64 = match unit.trim_start().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "kib" | "k" => 1 << 10,
        "mib" | "m" => 1 << 20,
        "gib" | "g" => 1 << 30,
        _ => return Err("a number of bytes is digits and B, kB, MB, GB, KiB, MiB or GiB".into()),
    };
    let number: u64 = number.parse().map_err(|_| "a number of bytes starts with digits")?;
    number.checked_mul(unit).ok_or_else(|| "that is more bytes than 64 bits count".into())
}

/// An address. What is wrong with it is known before anything is tried, so it is the command line's error.
pub(super) fn address(text: &str) -> Result<String, AddressError> {
    Address::parse(text).map(|_| text.to_owned())
}

/// The length of a value.
pub(super) fn value_len(text: &str) -> Result<u64, String> {
    match byte_count(text)? {
        len if len > VALUE_BYTES_MAX as u64 => {
            Err(format!("a value has at most {VALUE_BYTES_MAX} bytes"))
        }
        len => Ok(len),
    }
}

/// A key and a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pair {
    pub(crate) key: Vec<u8>,
    pub(crate) value: Vec<u8>,
}

/// A key and a value with the first `=` between them.
pub(super) fn pair(text: OsString) -> Result<Pair, String> {
    let bytes = text.into_vec();
    let mut parts = bytes.splitn(2, |byte| *byte == b'=');
    match (parts.next(), parts.next()) {
        (Some(key), Some(value)) => Ok(Pair { key: key.to_vec(), value: value.to_vec() }),
        _ => Err("there is no `=` between key and value".into()),
    }
}

/// A mix in a list with spaces after its commas.
#[derive(Clone)]
pub(super) struct Trimmed;

impl TypedValueParser for Trimmed {
    type Value = Mix;

    fn parse_ref(
        &self,
        command: &Command,
        arg: Option<&Arg>,
        value: &OsStr,
    ) -> Result<Mix, clap::Error> {
        let value = value.to_str().map_or(value, |text| OsStr::new(text.trim()));
        EnumValueParser::<Mix>::new().parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(Mix::value_variants().iter().filter_map(ValueEnum::to_possible_value)))
    }
}

/// A time in seconds, which may have a fraction.
pub(super) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "a number of seconds, such as 2.5")?;
    if !(0.001..=86_400.0).contains(&seconds) {
        return Err("from 0.001 to 86400 seconds".into());
    }
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_counts_have_units() {
        assert_eq!(byte_count("0"), Ok(0));
        assert_eq!(byte_count("64MiB"), Ok(64 << 20));
        assert_eq!(byte_count("200 MB"), Ok(200_000_000));
        assert_eq!(byte_count("1g"), Ok(1 << 30));
        assert!(byte_count("MiB").unwrap_err().contains("digits"));
        assert!(byte_count("1TiB").unwrap_err().contains("GiB"));
        assert!(byte_count("99999999999GiB").unwrap_err().contains("64 bits"));
    }

    #[test]
    fn a_key_ends_at_the_first_equals_sign() {
        let of = |text: &[u8]| pair(OsString::from_vec(text.to_vec())).map(|p| (p.key, p.value));
        assert_eq!(of(b"a=b=\xff"), Ok((b"a".to_vec(), b"b=\xff".to_vec())));
        assert_eq!(of(b"="), Ok((Vec::new(), Vec::new())));
        assert!(of(b"a").unwrap_err().contains("no `=`"));
    }

    #[test]
    fn timeouts_are_seconds_within_bounds() {
        assert_eq!(seconds("2.5"), Ok(Duration::from_millis(2_500)));
        for wrong in ["0", "-1", "nan", "inf", "1e9", "soon", ""] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }
}
