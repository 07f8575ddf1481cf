use crate::verbs::VerbsError;
use crate::world;

/// Where keys, QP numbers and GUIDs come from.
pub(super) enum Random {
    /// The system's CSPRNG: a peer cannot guess the next key from those it has seen.
    System,
    /// SplitMix64 over a seed, for tests that must be repeatable.
    Seeded(u64),
}

impl Random {
    pub(super) const fn new(seed: Option<u64>) -> Self {
        match seed {
            None => Self::System,
            Some(seed) => Self::Seeded(seed),
        }
    }

    pub(super) fn next(&mut self) -> Result<u64, VerbsError> {
        match self {
            Self::System => world::random_u64().map_err(|error| VerbsError::System {
                operation: "drawing a random number",
                source: std::io::Error::other(error.to_string()),
            }),
            Self::Seeded(state) => {
                *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
                let mut z = *state;
                z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
                z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
                Ok(z ^ (z >> 31))
            }
        }
    }
}
