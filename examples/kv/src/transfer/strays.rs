use std::collections::HashMap;

use futures_util::stream::{self, StreamExt};
use rpc_core::Status;
use rpc_core::bytes::Bytes;

use crate::proto::{DeleteRequest, KvClient, ListEntry, ListRequest};
use crate::transfer::entry::{Entry, Fate};
use crate::transfer::parts::{Part, part_of};

/// Keys that a store may have for each file of ours before it is cheaper to ask for the keys of each file
/// than to list all: a page of the list is some hundred calls' worth.
const KEYS_EACH: u64 = 100;

/// Keys of a page.
const PAGE_KEYS: u32 = 10_000;

/// Lists in flight at once, one for each file.
const LISTS: usize = 64;

/// The most strays that are taken at once; each is a key in memory. The next run takes the rest.
const STRAYS_MAX: usize = 100_000;

/// A key that a file had when it was longer or shorter, and that is none of its keys now.
///
/// A file of more than one part that shrinks leaves its later parts behind, or all of them if it fits into
/// one value then; and one that grows beyond that leaves the one value. Whoever joined the parts would
/// get bytes that are not the file's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stray {
    /// Which file's.
    pub(crate) entry: usize,
    key: Bytes,
    version: u64,
}

/// The strays of all files that went well, in a store of so many keys.
pub(crate) async fn find(
    client: &KvClient,
    entries: &[Entry],
    store_keys: u64,
) -> Result<Vec<Stray>, Status> {
    let owners = Owners::of(entries);
    let mut found = Vec::new();
    if owners.0.is_empty() || store_keys == 0 {
        return Ok(found);
    }
    if store_keys / KEYS_EACH <= owners.0.len() as u64 {
        owners.list(client, Bytes::new(), None, &mut found).await?;
        return Ok(found);
    }
    let lists = owners.0.keys().map(|name| {
        let owners = &owners;
        async move {
            let mut found = Vec::new();
            let prefix = Bytes::copy_from_slice(name);
            owners.list(client, prefix, Some(name), &mut found).await.map(|()| found)
        }
    });
    let mut lists = stream::iter(lists).buffer_unordered(LISTS);
    while let Some(some) = lists.next().await {
        found.extend(some?);
    }
    found.truncate(STRAYS_MAX);
    Ok(found)
}

/// Deletes strays; how many there were still. One that somebody has written since is left alone.
pub(crate) async fn delete(client: &KvClient, strays: &[Stray]) -> Result<u64, Status> {
    let deletes = strays.iter().map(|stray| {
        let expected_version = Some(stray.version);
        client.delete(DeleteRequest { key: stray.key.clone(), expected_version })
    });
    let mut deletes = stream::iter(deletes).buffer_unordered(LISTS);
    let mut deleted = 0;
    while let Some(ended) = deletes.next().await {
        match ended {
            Ok(answer) => deleted += u64::from(answer.into_inner().existed),
            Err(status) if status.code() == rpc_core::Code::Aborted => {}
            Err(status) => return Err(status),
        }
    }
    Ok(deleted)
}

/// Files by name: which they are, and how many parts they have.
struct Owners<'a>(HashMap<&'a [u8], (usize, u64)>);

impl<'a> Owners<'a> {
    fn of(entries: &'a [Entry]) -> Self {
        let well = entries.iter().enumerate().filter(|(_, entry)| entry.fate == Fate::Verified);
        let owner =
            |(index, entry): (usize, &'a Entry)| (&entry.name[..], (index, Part::count(entry.len)));
        Self(well.map(owner).collect())
    }

    /// Whose stray a key is.
    fn stray(&self, key: &[u8]) -> Option<usize> {
        let (name, part) = part_of(key);
        let (entry, parts) = *self.0.get(name)?;
        let is_stray = match part {
            None => parts > 1,
            Some(part) => parts == 1 || part >= parts,
        };
        is_stray.then_some(entry)
    }

    /// Takes the strays from a list, all of it, or as far as there may be keys of one file.
    async fn list(
        &self,
        client: &KvClient,
        prefix: Bytes,
        of: Option<&[u8]>,
        found: &mut Vec<Stray>,
    ) -> Result<(), Status> {
        let mut page_token = Bytes::new();
        loop {
            // The keys of a file come first among all that begin with its name: a zero byte is the least.
            let page_size = if of.is_some() { 2 } else { PAGE_KEYS };
            let request = ListRequest { prefix: prefix.clone(), page_size, page_token };
            let page = client.list(request).await?.into_inner();
            for ListEntry { key, version, .. } in page.entries {
                if of.is_some_and(|name| part_of(&key).0 != name) || found.len() == STRAYS_MAX {
                    return Ok(());
                }
                if let Some(entry) = self.stray(&key) {
                    found.push(Stray { entry, key, version });
                }
            }
            page_token = page.next_page_token;
            if page_token.is_empty() {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::VALUE_BYTES_MAX;

    fn entry(name: &str, len: u64) -> Entry {
        let mut entry = Entry::new(name.into());
        entry.len = len;
        entry.fate = Fate::Verified;
        entry
    }

    #[test]
    fn only_keys_that_a_file_had_in_another_shape_are_strays() {
        let mut failed = entry("c", 0);
        failed.fate = Fate::Changed;
        let entries = [entry("a", 1), entry("b", 3 * VALUE_BYTES_MAX as u64), failed];
        let owners = Owners::of(&entries);
        for (key, stray) in [
            ("a", None),
            ("a\0part/0", Some(0)),
            ("a\0part/99", Some(0)),
            ("b", Some(1)),
            ("b\0part/2", None),
            ("b\0part/3", Some(1)),
            // Written by somebody else, in a form that no load uses.
            ("a\0part/", None),
            ("a\0part/01", None),
            ("a\0part/+1", None),
            ("a\0piece/1", None),
            ("c\0part/0", None),
            ("d\0part/0", None),
        ] {
            assert_eq!(owners.stray(key.as_bytes()), stray, "{key:?}");
        }
    }
}
