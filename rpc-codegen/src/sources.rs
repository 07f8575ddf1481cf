//! Reading `.proto` files, and finding places in them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use prost_types::{FileDescriptorProto, FileDescriptorSet};
use protox::Compiler;

use crate::errors::Problems;

/// The files that were named and all they import.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    /// In an order where imports come first.
    pub(crate) set: FileDescriptorSet,
    /// The path of each file on disk by its name among the imports. Files that are built into the
    /// compiler, as `google/protobuf/empty.proto`, have none.
    paths: BTreeMap<String, PathBuf>,
    /// The set once more, encoded, without comments and with options that are extensions.
    pub(crate) encoded: Vec<u8>,
}

impl Sources {
    /// Compiles `protos`. What is wrong with one does not keep the others from being read.
    pub(crate) fn load(protos: &[&Path], includes: &[&Path], problems: &mut Problems) -> Self {
        let mut compiler = match Compiler::new(includes) {
            Ok(compiler) => compiler,
            Err(error) => {
                problems.push(describe(&error, includes));
                return Self::default();
            }
        };
        compiler.include_imports(true).include_source_info(true);
        // The order in which they are named changes nothing in what comes out.
        for proto in protos.iter().copied().collect::<BTreeSet<_>>() {
            if let Err(error) = compiler.open_file(proto) {
                problems.push(describe(&error, includes));
            }
        }
        let paths = compiler
            .files()
            .filter_map(|file| Some((file.name().to_owned(), file.path()?.to_owned())))
            .collect();
        let set = compiler.file_descriptor_set();
        let encoded = compiler.include_source_info(false).encode_file_descriptor_set();
        Self { set, paths, encoded }
    }

    /// Every file on disk that the result depends on.
    pub(crate) fn files_on_disk(&self) -> impl Iterator<Item = &Path> {
        self.paths.values().map(PathBuf::as_path)
    }

    /// `file:line:column` of the first of these descriptor paths that the file has. The numbers are
    /// those of `google.protobuf.SourceCodeInfo.Location.path`.
    pub(crate) fn place(&self, file: &FileDescriptorProto, candidates: &[&[i32]]) -> String {
        let path = self
            .paths
            .get(file.name())
            .map_or_else(|| file.name().to_owned(), |path| path.display().to_string());
        let locations = file.source_code_info.iter().flat_map(|info| &info.location);
        let span = candidates.iter().find_map(|wanted| {
            locations.clone().find(|location| location.path == **wanted).map(|found| &found.span)
        });
        match span.map(Vec::as_slice) {
            Some([line, column, ..]) => format!("{path}:{}:{}", line + 1, column + 1),
            _ => path,
        }
    }
}

/// The compiler's words, with the file's name as a path from here.
fn describe(error: &protox::Error, includes: &[&Path]) -> String {
    let text = format!("{error:?}");
    if text.contains("is not in any include path") {
        let places: Vec<_> = includes.iter().map(|path| path.display().to_string()).collect();
        return format!(
            "{text}: there is no such file below {}; name it from there or from the current directory",
            if places.is_empty() { "any, as none is given".to_owned() } else { places.join(", ") }
        );
    }
    let on_disk = error.file().filter(|name| text.starts_with(*name)).and_then(|name| {
        Some((name, includes.iter().map(|dir| dir.join(name)).find(|p| p.exists())?))
    });
    match on_disk {
        Some((name, path)) => format!("{}{}", path.display(), &text[name.len()..]),
        None => text,
    }
}
