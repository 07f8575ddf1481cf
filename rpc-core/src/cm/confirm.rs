use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::Role;

/// Separates these codes from any other use of the same key.
const DOMAIN: &[u8] = b"rpc-core qp confirm v1\0\0";

/// Bytes of a nonce that each side puts into its hello.
pub const NONCE_BYTES: usize = 32;

/// What both sides know after the handshake, and nobody else. Both must state it alike.
pub(super) struct ConfirmInput {
    /// From the connecting side's hello.
    pub connecting_nonce: [u8; NONCE_BYTES],
    /// From the accepting side's hello.
    pub accepting_nonce: [u8; NONCE_BYTES],
    /// The connecting side's QP.
    pub connecting_qpn: u32,
    /// The accepting side's QP.
    pub accepting_qpn: u32,
    /// The connecting side's boot id.
    pub connecting_boot_id: u128,
    /// The accepting side's boot id.
    pub accepting_boot_id: u128,
    /// The connection's epoch.
    pub epoch: u32,
    /// The version agreed on.
    pub version: u16,
}

/// The codes by which the first message on a QP proves that the QP belongs to its control
/// connection, and that nothing between changed the addresses. They differ by role, so neither side
/// can answer with what it was sent.
#[derive(Clone)]
pub struct ConfirmKeys {
    /// What this side sends in its CONFIRM.
    pub own: [u8; 32],
    /// What the peer's CONFIRM must carry; compare by [`Self::peer_matches`].
    pub peer: [u8; 32],
}

impl ConfirmKeys {
    pub(super) fn new(role: Role, input: &ConfirmInput) -> Self {
        let connecting = mac(Role::Connecting, input);
        let accepting = mac(Role::Accepting, input);
        match role {
            Role::Connecting => Self { own: connecting, peer: accepting },
            Role::Accepting => Self { own: accepting, peer: connecting },
        }
    }

    /// Whether `mac` is what the peer must send. Takes the same time whatever differs.
    pub fn peer_matches(&self, mac: &[u8; 32]) -> bool {
        self.peer.iter().zip(mac).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
    }
}

impl fmt::Debug for ConfirmKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ConfirmKeys(hidden)")
    }
}

/// HMAC-SHA256, keyed by both nonces, over fixed-length little-endian fields.
// docs/wire-format.md section 12.7
fn mac(sender: Role, input: &ConfirmInput) -> [u8; 32] {
    let mut key = [0; 2 * NONCE_BYTES];
    key[..NONCE_BYTES].copy_from_slice(&input.connecting_nonce);
    key[NONCE_BYTES..].copy_from_slice(&input.accepting_nonce);
    let mut mac =
        Hmac::<Sha256>::new_from_slice(&key).unwrap_or_else(|_| unreachable!("HMAC takes any key"));
    mac.update(DOMAIN);
    mac.update(&[match sender {
        Role::Connecting => 1,
        Role::Accepting => 2,
    }]);
    mac.update(&input.connecting_qpn.to_le_bytes());
    mac.update(&input.accepting_qpn.to_le_bytes());
    mac.update(&input.connecting_boot_id.to_le_bytes());
    mac.update(&input.accepting_boot_id.to_le_bytes());
    mac.update(&input.epoch.to_le_bytes());
    mac.update(&input.version.to_le_bytes());
    mac.finalize().into_bytes().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input() -> ConfirmInput {
        ConfirmInput {
            connecting_nonce: [1; NONCE_BYTES],
            accepting_nonce: [2; NONCE_BYTES],
            connecting_qpn: 3,
            accepting_qpn: 4,
            connecting_boot_id: 5,
            accepting_boot_id: 6,
            epoch: 7,
            version: 1,
        }
    }

    #[test]
    fn each_side_sends_what_the_other_expects() {
        let connecting = ConfirmKeys::new(Role::Connecting, &input());
        let accepting = ConfirmKeys::new(Role::Accepting, &input());
        assert!(connecting.peer_matches(&accepting.own));
        assert!(accepting.peer_matches(&connecting.own));
    }

    #[test]
    fn a_code_cannot_be_reflected() {
        let keys = ConfirmKeys::new(Role::Connecting, &input());
        assert!(!keys.peer_matches(&keys.own));
    }

    #[test]
    fn every_changed_input_changes_both_codes() {
        type Change = fn(&mut ConfirmInput);
        let changes: [Change; 8] = [
            |i| i.connecting_nonce[31] ^= 1,
            |i| i.accepting_nonce[0] ^= 1,
            |i| i.connecting_qpn ^= 1,
            |i| i.accepting_qpn ^= 1,
            |i| i.connecting_boot_id ^= 1 << 127,
            |i| i.accepting_boot_id ^= 1,
            |i| i.epoch ^= 1 << 31,
            |i| i.version ^= 2,
        ];
        let before = ConfirmKeys::new(Role::Connecting, &input());
        for (number, change) in changes.iter().enumerate() {
            let mut changed = input();
            change(&mut changed);
            let after = ConfirmKeys::new(Role::Connecting, &changed);
            assert_ne!(before.own, after.own, "change {number}");
            assert_ne!(before.peer, after.peer, "change {number}");
        }
    }

    #[test]
    fn every_bit_of_the_code_is_compared() {
        let keys = ConfirmKeys::new(Role::Accepting, &input());
        for bit in 0..256 {
            let mut mac = keys.peer;
            mac[bit / 8] ^= 1 << (bit % 8);
            assert!(!keys.peer_matches(&mac));
        }
    }

    #[test]
    fn debug_output_hides_the_codes() {
        let keys = ConfirmKeys { own: [0xab; 32], peer: [0xab; 32] };
        assert_eq!(format!("{keys:?}"), "ConfirmKeys(hidden)");
    }
}
