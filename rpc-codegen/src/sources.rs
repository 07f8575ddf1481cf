//! Reading `.proto` files, and finding places in them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use miette::Diagnostic;
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
                describe(&error, includes).into_iter().for_each(|said| problems.push(said));
                return Self::default();
            }
        };
        compiler.include_imports(true).include_source_info(true);
        // The order in which they are named changes nothing in what comes out.
        for proto in protos.iter().copied().collect::<BTreeSet<_>>() {
            if let Err(error) = compiler.open_file(proto) {
                describe(&error, includes).into_iter().for_each(|said| problems.push(said));
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

/// The compiler's words about each thing it found wrong, with files' names as paths from here, and with
/// what they leave open.
fn describe(error: &protox::Error, includes: &[&Path]) -> Vec<String> {
    let first = format!("{error:?}");
    let mut all = vec![on_disk(error, &first, includes)];
    for related in error.related().into_iter().flatten() {
        let place = place_of(error, related).unwrap_or_default();
        let name = error.file().unwrap_or_default();
        all.push(on_disk(error, &format!("{name}:{place} {related}"), includes));
    }
    for text in &mut all {
        if let Some(more) = advice(text, includes) {
            *text = format!("{text}{more}");
        }
    }
    all
}

/// `line:column:` of an error that is told behind the first.
fn place_of(error: &protox::Error, related: &dyn Diagnostic) -> Option<String> {
    // Where there are two places, the last is that of what cannot be.
    let label = related.labels()?.last()?;
    let found = error.source_code()?.read_span(label.inner(), 0, 0).ok()?;
    Some(format!("{}:{}:", found.line() + 1, found.column() + 1))
}

fn on_disk(error: &protox::Error, text: &str, includes: &[&Path]) -> String {
    let found = error.file().filter(|name| text.starts_with(*name)).and_then(|name| {
        Some((name, includes.iter().map(|dir| dir.join(name)).find(|p| p.exists())?))
    });
    match found {
        Some((name, path)) => format!("{}{}", path.display(), &text[name.len()..]),
        None => text.to_owned(),
    }
}

/// What to do, where the compiler does not say it.
fn advice(text: &str, includes: &[&Path]) -> Option<String> {
    let folders = || {
        let places: Vec<_> = includes.iter().map(|path| path.display().to_string()).collect();
        if places.is_empty() {
            "any folder, as none is given".to_owned()
        } else {
            places.join(", ")
        }
    };
    if text.contains("is not in any include path") {
        if let Some(missing) = includes.iter().find(|path| !path.is_dir()) {
            return Some(format!(
                ": the include folder {} does not exist; is its name spelled right?",
                missing.display()
            ));
        }
        return Some(format!(
            ": there is no such file here, nor below {}; is its name spelled right?",
            folders()
        ));
    }
    if text.contains(": import '") && text.ends_with("not found") {
        return Some(format!(" below {}; give its folder to `compile` as an include", folders()));
    }
    if text.contains("but found 'edition'") {
        return Some(
            "; editions are not supported yet: write `syntax = \"proto3\";`, or \"proto2\", in its place"
                .to_owned(),
        );
    }
    if text.contains("fields must have a label with proto2 syntax") {
        return Some(
            "; a file without a `syntax` line is proto2: `syntax = \"proto3\";` in its first line may be \
             what is missing"
                .to_owned(),
        );
    }
    None
}
