use indicatif::{ProgressBar, ProgressStyle};
use rpc_core::bytes::Bytes;
use serde_json::{Value, json};

use crate::cli::CheckArgs;
use crate::failure::{Exit, Failure, err, out};
use crate::limits::{PAGE_BYTES_MAX, PAGE_KEYS_MAX};
use crate::store::{Range, Refused, Store};
use crate::text::{abridged, counted, grouped, set_bytes};

/// Damaged keys that are named; beyond these only their number.
const NAMED_MAX: usize = 1_000;

/// What was found.
#[derive(Debug, Default)]
struct Found {
    keys: u64,
    bytes: u64,
    damaged: u64,
    named: Vec<Bytes>,
}

/// `kv check`
pub(crate) fn run(args: &CheckArgs) -> Result<Exit, Failure> {
    if !Store::lies_in(&args.dir) {
        let folder = args.dir.display();
        return Err(Failure::new(format!(
            "there is no store in {folder}; name the folder of kv serve --data"
        )));
    }
    let store = Store::in_folder(&args.dir, u64::MAX)?;
    let found = rpc_core::block_on(all(&store))?;
    for key in &found.named {
        err(format_args!("DAMAGED: {}\n", abridged(key)));
    }
    if found.damaged > found.named.len() as u64 {
        err(format_args!("and {} more\n", grouped(found.damaged - found.named.len() as u64)));
    }
    out(if args.json { to_json(&found) } else { to_text(&found) }.as_bytes())?;
    Ok(if found.damaged == 0 { Exit::Done } else { Exit::Failed })
}

/// Reads every value, in the order of their keys.
async fn all(store: &Store) -> Result<Found, Failure> {
    let bar = ProgressBar::new(store.usage().keys).with_message("check");
    if let Ok(style) = ProgressStyle::with_template("{msg:7} {wide_bar} {pos} of {len} keys  {eta}")
    {
        bar.set_style(style);
    }
    let mut found = Found::default();
    let mut after = None;
    loop {
        let range = Range {
            prefix: Bytes::new(),
            after: after.take(),
            keys_max: PAGE_KEYS_MAX,
            bytes_max: PAGE_BYTES_MAX,
        };
        let page = store.list(range).await.map_err(failed)?;
        for listed in &page.entries {
            found.keys += 1;
            match store.get(listed.key.clone()).await {
                Ok(value) => found.bytes += value.map_or(0, |value| value.value.len() as u64),
                Err(Refused::ValueDamaged { key, .. }) => {
                    found.damaged += 1;
                    if found.named.len() < NAMED_MAX {
                        found.named.push(key);
                    }
                }
                Err(refused) => return Err(failed(refused)),
            }
            bar.inc(1);
        }
        match page.entries.last() {
            Some(last) if page.more => after = Some(last.key.clone()),
            _ => break,
        }
    }
    bar.finish_and_clear();
    Ok(found)
}

/// Why the file could not be read on.
fn failed(refused: Refused) -> Failure {
    match refused {
        Refused::Damaged(what) => Failure::new(format!(
            "the data file itself is damaged, and what comes after cannot be read: {what}; take it from a copy",
        )),
        Refused::Disk(error) => Failure::new(format!("the disk failed: {error}")),
        other => Failure::new(format!("the file could not be read: {other:?}")),
    }
}

fn to_text(found: &Found) -> String {
    let what = match found.damaged {
        0 => "none is damaged".into(),
        1 => "1 is damaged".into(),
        damaged => format!("{} are damaged", grouped(damaged)),
    };
    let (keys, bytes) = (counted(found.keys, "key"), grouped(found.bytes));
    format!("checked {keys}, {bytes} bytes of values: {what}\n")
}

fn to_json(found: &Found) -> String {
    let named = found.named.iter().map(|key| {
        let mut object = json!({});
        set_bytes(&mut object, "key", key);
        object
    });
    let named: Vec<Value> = named.collect();
    let counts = (found.keys, found.bytes, found.damaged);
    format!(
        "{}\n",
        json!({ "keys": counts.0, "value_bytes": counts.1, "damaged": counts.2, "named": named })
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sentence_counts_what_is_damaged() {
        let mut found = Found { keys: 1, bytes: 1_000, ..Found::default() };
        assert_eq!(to_text(&found), "checked 1 key, 1,000 bytes of values: none is damaged\n");
        found.damaged = 2;
        assert!(to_text(&found).ends_with("2 are damaged\n"));
    }
}
