//! `kv make-tree`: a folder whose file sizes are the hard ones, the same for the same seed.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::cli::MakeTreeArgs;
use crate::failure::{Exit, Failure, out};
use crate::random::Random;

/// Sizes around every boundary a small value meets: empty, tiny, around two pages, around an eager
/// buffer, and one that no buffer of a power of two fits.
const SMALL: [u64; 11] = [0, 17, 300, 4_000, 8_191, 8_192, 8_193, 9_215, 9_216, 9_217, 40_000];
const MEDIUM: u64 = 1 << 20;
const LARGE: u64 = 16 << 20;

/// Files in one folder, so that there are several folders.
const FILES_PER_FOLDER: usize = 250;

/// `kv make-tree`
pub(crate) fn run(args: &MakeTreeArgs) -> Result<Exit, Failure> {
    let failed =
        |error| Failure::because(format!("making the folder {} failed", args.dir.display()), error);
    fs::create_dir_all(&args.dir).map_err(failed)?;
    if fs::read_dir(&args.dir).map_err(failed)?.next().is_some() {
        return Err(Failure::new(format!(
            "{} is not empty; name a folder that does not exist",
            args.dir.display(),
        )));
    }
    let sizes = sizes(args.files as usize, args.bytes, args.seed);
    for (index, size) in sizes.iter().enumerate() {
        write_file(&args.dir, index, *size, args.seed).map_err(failed)?;
    }
    let total: u64 = sizes.iter().sum();
    out(format!("made {} files, {total} bytes\n", sizes.len()).as_bytes())?;
    Ok(Exit::Done)
}

/// The size of each file: small ones in turn, medium and large ones for half of the rest each, and one
/// that brings the sum to `bytes` exactly; in an order that the seed gives.
fn sizes(files: usize, bytes: u64, seed: u64) -> Vec<u64> {
    let mut sizes: Vec<u64> = SMALL.iter().copied().cycle().take(files).collect();
    let mut total: u64 = sizes.iter().sum();
    let mut index = files;
    // From the end, so that at least one round of small files stays; the last slot is for the rest.
    for (size, until) in [(LARGE, total + bytes.saturating_sub(total) / 2), (MEDIUM, bytes)] {
        while index > SMALL.len() + 1 && total - sizes[index - 1] + size <= until {
            index -= 1;
            total = total - sizes[index] + size;
            sizes[index] = size;
        }
    }
    if index > SMALL.len() {
        let rest = bytes.saturating_sub(total - sizes[index - 1]);
        sizes[index - 1] = rest;
    }
    let mut random = Random(seed);
    for index in (1..sizes.len()).rev() {
        sizes.swap(index, (random.next() % (index as u64 + 1)) as usize);
    }
    sizes
}

fn write_file(dir: &Path, index: usize, size: u64, seed: u64) -> io::Result<()> {
    let folder = dir.join(folder_name(index / FILES_PER_FOLDER));
    if index.is_multiple_of(FILES_PER_FOLDER) {
        fs::create_dir_all(&folder)?;
    }
    let mut file = File::create_new(folder.join(file_name(index)))?;
    let mut random = Random(seed ^ (index as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mut left = size;
    let mut buffer = vec![0; 64 << 10];
    while left > 0 {
        let len = left.min(buffer.len() as u64) as usize;
        for word in buffer[..len.next_multiple_of(8)].chunks_exact_mut(8) {
            word.copy_from_slice(&random.next().to_le_bytes());
        }
        file.write_all(&buffer[..len])?;
        left -= len as u64;
    }
    Ok(())
}

fn folder_name(folder: usize) -> PathBuf {
    match folder % 4 {
        3 => format!("nested/deeper/{folder:03}").into(),
        2 => format!("with space {folder:03}").into(),
        _ => format!("plain-{folder:03}").into(),
    }
}

/// Names of all kinds that Linux takes: some that are not UTF-8, some with spaces or line ends, and
/// some of the greatest length.
fn file_name(index: usize) -> PathBuf {
    let mut name = format!("file-{index:05}").into_bytes();
    match index % 50 {
        7 => name.extend_from_slice(b"-\xff\xfe-latin-\xe9"),
        14 => name.extend_from_slice(b" with\nline end"),
        21 => name.extend_from_slice("-räksmörgås-鍵".as_bytes()),
        28 => name.resize(255, b'x'),
        35 => name.insert(0, b'.'),
        42 => name.insert(0, b'-'),
        _ => name.extend_from_slice(b".bin"),
    }
    OsStr::from_bytes(&name).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_thousand_files_of_all_sizes_have_two_hundred_megabytes() {
        let sizes = sizes(5_000, 200_000_000, 1);
        assert_eq!(sizes.len(), 5_000);
        assert_eq!(sizes.iter().sum::<u64>(), 200_000_000);
        for size in SMALL.into_iter().chain([MEDIUM, LARGE]) {
            assert!(sizes.contains(&size), "{size}");
        }
    }

    #[test]
    fn a_seed_gives_one_order_and_another_seed_another() {
        assert_eq!(sizes(100, 3_000_000, 1), sizes(100, 3_000_000, 1));
        assert_ne!(sizes(100, 3_000_000, 1), sizes(100, 3_000_000, 2));
    }

    #[test]
    fn few_files_and_few_bytes_are_made_all_the_same() {
        assert_eq!(sizes(0, 10, 1).len(), 0);
        assert_eq!(sizes(3, 10, 1).len(), 3);
        assert_eq!(sizes(20, 0, 1).len(), 20);
        assert_eq!(sizes(20, 2_000_000, 1).iter().sum::<u64>(), 2_000_000);
    }

    #[test]
    fn the_same_seed_writes_the_same_bytes() {
        let dir = tempfile::tempdir().unwrap();
        for copy in ["a", "b"] {
            write_file(&dir.path().join(copy), 0, 100_001, 7).unwrap();
        }
        let read = |copy: &str| fs::read(dir.path().join(copy).join("plain-000/file-00000.bin"));
        assert_eq!(read("a").unwrap().len(), 100_001);
        assert_eq!(read("a").unwrap(), read("b").unwrap());
    }
}
