use rpc_core::bytes::Bytes;
use sha2::{Digest, Sha256};

use crate::limits::KEY_BYTES_MAX;

const FORMAT: u8 = 1;
const DIGEST_BYTES: usize = 16;

/// The token of the page after `last`, of a list of keys that begin with `prefix`.
///
/// It has no secret and needs none: whoever makes one up names a place among keys that they may list
/// anyway. The digest is for those that were cut off, mixed up or used with another prefix. It is the
/// same in every server, so a list goes on after a restart.
pub(crate) fn make(prefix: &[u8], last: &[u8]) -> Bytes {
    [&[FORMAT][..], &digest(prefix, last), last].concat().into()
}

/// The key after which the page begins, or what is wrong with the token.
pub(crate) fn check(prefix: &[u8], token: &Bytes) -> Result<Bytes, &'static str> {
    const CUT: &str = "it is cut off";
    let (&FORMAT, rest) = token.split_first().ok_or(CUT)? else {
        return Err("it is not one of this server's");
    };
    let (digest_in, last) = rest.split_first_chunk::<DIGEST_BYTES>().ok_or(CUT)?;
    if last.len() > KEY_BYTES_MAX || *digest_in != digest(prefix, last) {
        return Err("it was changed on its way, or belongs to another prefix");
    }
    if !last.starts_with(prefix) {
        return Err("it belongs to another prefix");
    }
    Ok(token.slice_ref(last))
}

fn digest(prefix: &[u8], last: &[u8]) -> [u8; DIGEST_BYTES] {
    let mut hash = Sha256::new();
    hash.update(b"kv page token");
    hash.update((prefix.len() as u64).to_le_bytes());
    hash.update(prefix);
    hash.update(last);
    let whole: [u8; 32] = hash.finalize().into();
    let mut digest = [0; DIGEST_BYTES];
    digest.copy_from_slice(&whole[..DIGEST_BYTES]);
    digest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_leads_to_the_key_it_was_made_of() {
        for (prefix, last) in [(&b""[..], &b""[..]), (b"", b"key"), (b"a/", b"a/b\xff")] {
            assert_eq!(check(prefix, &make(prefix, last)).as_deref(), Ok(last));
        }
    }

    #[test]
    fn every_changed_or_shortened_token_is_refused() {
        let token = make(b"a/", b"a/key");
        for at in 0..token.len() {
            for bit in 0..8 {
                let mut changed = token.to_vec();
                changed[at] ^= 1 << bit;
                assert!(check(b"a/", &changed.into()).is_err(), "byte {at}, bit {bit}");
            }
            assert!(check(b"a/", &token.slice(..at)).is_err(), "cut at {at}");
        }
        assert!(check(b"a", &token).is_err());
        assert!(check(b"b/", &token).is_err());
        let outside = make(b"a/", b"b/key");
        assert_eq!(check(b"a/", &outside), Err("it belongs to another prefix"));
        let long = make(b"", &[0; KEY_BYTES_MAX + 1]);
        assert!(check(b"", &long).is_err());
    }
}
