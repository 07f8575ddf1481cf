use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use prost_build::Module;

use crate::check::check;
use crate::comments::clean_all;
use crate::errors::{Error, Problems};
use crate::format::format;
use crate::names::module_path;
use crate::output::{self, Package};
use crate::services::Traits;
use crate::sources::Sources;

const CORE_PATH: &str = "::rpc_core";
const INCLUDE_FILE: &str = "rpc_protos.rs";

/// Says how to compile `.proto` files, and compiles them.
///
/// Everything has a default that fits; see the [crate's page](crate) for what comes out.
#[derive(Clone, Debug)]
pub struct Builder {
    core_path: String,
    out_dir: Option<PathBuf>,
    include_file: String,
    default_stubs: bool,
    service_names: BTreeMap<String, String>,
    method_names: BTreeMap<String, String>,
    extern_paths: BTreeMap<String, String>,
    type_attributes: Vec<(String, String)>,
    field_attributes: Vec<(String, String)>,
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            core_path: CORE_PATH.to_owned(),
            out_dir: None,
            include_file: INCLUDE_FILE.to_owned(),
            default_stubs: false,
            service_names: BTreeMap::new(),
            method_names: BTreeMap::new(),
            extern_paths: BTreeMap::new(),
            type_attributes: Vec::new(),
            field_attributes: Vec::new(),
        }
    }
}

impl Builder {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Where the generated code finds rpc_core. Default `::rpc_core`.
    ///
    /// For a crate that is known by another name: `::my_rpc`, or `crate::rpc` for a re-export. It
    /// begins with `::` or `crate`, as generated code is used in modules of any depth.
    #[must_use]
    pub fn core_path(mut self, path: impl Into<String>) -> Self {
        self.core_path = path.into();
        self
    }

    /// Where the files go. Default: the build script's `OUT_DIR`, where `include_proto!` looks.
    ///
    /// The folder must exist.
    #[must_use]
    pub fn out_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.out_dir = Some(dir.into());
        self
    }

    /// The name of the file that has all packages as a tree of modules. Default `rpc_protos.rs`.
    /// The descriptor set lies beside it and ends in `.bin` instead.
    ///
    /// A build script that compiles several sets of files into one folder gives each its own, and
    /// includes it with `include_protos!("name.rs")`.
    #[must_use]
    pub fn include_file(mut self, name: impl Into<String>) -> Self {
        self.include_file = name.into();
        self
    }

    /// If true, every method of a trait has a body that answers UNIMPLEMENTED, so that a new method
    /// in the `.proto` does not break the servers' build. Default false.
    #[must_use]
    pub fn default_stubs(mut self, yes: bool) -> Self {
        self.default_stubs = yes;
        self
    }

    /// Gives a service another name in Rust: `rename_service(".kv.v1.Kv", "KvService")`. The client
    /// and server are then `KvServiceClient` and `KvServiceServer`. The name on the wire stays.
    #[must_use]
    pub fn rename_service(mut self, proto: impl Into<String>, rust: impl Into<String>) -> Self {
        self.service_names.insert(proto.into(), rust.into());
        self
    }

    /// Gives a method another name in Rust: `rename_method(".kv.v1.Kv.New", "create")`. The name on
    /// the wire stays.
    #[must_use]
    pub fn rename_method(mut self, proto: impl Into<String>, rust: impl Into<String>) -> Self {
        self.method_names.insert(proto.into(), rust.into());
        self
    }

    /// Uses types from elsewhere for a package, or for one message or enum, and generates none, nor
    /// traits for services in it: `extern_path(".common.v1", "::common::v1")`.
    #[must_use]
    pub fn extern_path(mut self, proto: impl Into<String>, rust: impl Into<String>) -> Self {
        self.extern_paths.insert(proto.into(), rust.into());
        self
    }

    /// Adds an attribute to the messages, enums and oneofs that a path matches:
    /// `type_attribute(".kv.v1.Pair", "#[derive(serde::Serialize)]")`. The path `.` matches all; the
    /// other rules are those of `prost_build::Config::type_attribute`.
    #[must_use]
    pub fn type_attribute(mut self, path: impl Into<String>, attribute: impl Into<String>) -> Self {
        self.type_attributes.push((path.into(), attribute.into()));
        self
    }

    /// Adds an attribute to the fields that a path matches, as [`Builder::type_attribute`] does to
    /// types.
    #[must_use]
    pub fn field_attribute(
        mut self,
        path: impl Into<String>,
        attribute: impl Into<String>,
    ) -> Self {
        self.field_attributes.push((path.into(), attribute.into()));
        self
    }

    /// Compiles `protos` and what they import, and writes the Rust files.
    ///
    /// Each of `protos` is a path from the current directory or from one of `includes`, and lies
    /// below one of these. Cargo is told to run the build script again if any file that was read
    /// changes.
    ///
    /// # Errors
    /// Everything that is wrong with the files and with this builder, at once. Nothing is written
    /// then.
    pub fn compile<P: AsRef<Path>, I: AsRef<Path>>(
        &self,
        protos: &[P],
        includes: &[I],
    ) -> Result<(), Error> {
        let protos: Vec<&Path> = protos.iter().map(AsRef::as_ref).collect();
        let includes: Vec<&Path> = includes.iter().map(AsRef::as_ref).collect();
        let mut problems = Problems::default();
        let sources = Sources::load(&protos, &includes, &mut problems);
        // A path that names nothing from here would make cargo run the script every time.
        let named = protos.iter().copied().filter(|path| path.exists());
        output::tell_cargo(named.chain(sources.files_on_disk()));
        let descriptors = sources.encoded.clone();
        let packages = self.generate(sources, problems)?;
        let mut problems = Problems::default();
        if let Some(dir) =
            self.out_dir.clone().or_else(|| std::env::var_os("OUT_DIR").map(Into::into))
        {
            if self.out_dir.is_none() {
                output::remove_stale(&dir, &protos, &packages, &mut problems);
            }
            output::write(&dir, &self.include_file, &packages, &descriptors, &mut problems);
        } else {
            problems.push(
                "there is no OUT_DIR: call this in a build script, or say where files go with \
                 `Builder::out_dir`",
            );
        }
        problems.unless(())
    }

    fn generate(
        &self,
        mut sources: Sources,
        mut problems: Problems,
    ) -> Result<Vec<Package>, Error> {
        let names = check(self, &sources, &mut problems);
        let core = self.core(&mut problems);
        // prost-build panics on some of what the checks find, so it does not get that far.
        let (names, core) = problems.unless((names, core))?;

        clean_all(&mut sources.set);
        let problems = Rc::new(RefCell::new(Problems::default()));
        let mut config = self.config();
        config.service_generator(Box::new(Traits {
            names,
            core,
            core_moved: self.core_path != CORE_PATH,
            default_stubs: self.default_stubs,
            problems: Rc::clone(&problems),
        }));
        let packages = self.run(config, sources, &problems);
        problems.take().unless(packages)
    }

    fn core(&self, problems: &mut Problems) -> syn::Path {
        let path = syn::parse_str(&self.core_path).ok().filter(|path: &syn::Path| {
            path.leading_colon.is_some()
                || path.segments.first().is_some_and(|first| first.ident == "crate")
        });
        path.unwrap_or_else(|| {
            problems.push(format!(
                "Builder::core_path(\"{}\"): the path begins with `::` or `crate`, as `::my_rpc` does",
                self.core_path
            ));
            syn::parse_quote!(::rpc_core)
        })
    }

    fn config(&self) -> prost_build::Config {
        let mut config = prost_build::Config::new();
        config
            .prost_path(format!("{}::prost", self.core_path))
            .prost_types_path(format!("{}::prost_types", self.core_path))
            // `Bytes` can lie in payload memory, so such a field is received without a copy.
            .bytes(["."])
            .format(false);
        for (proto, rust) in &self.extern_paths {
            config.extern_path(proto, rust);
        }
        for (path, attribute) in &self.type_attributes {
            config.type_attribute(path, attribute);
        }
        for (path, attribute) in &self.field_attributes {
            config.field_attribute(path, attribute);
        }
        config
    }

    fn run(
        &self,
        mut config: prost_build::Config,
        mut sources: Sources,
        problems: &RefCell<Problems>,
    ) -> Vec<Package> {
        // One module can be the home of several files.
        let mut origins: BTreeMap<Vec<String>, (String, Vec<String>)> = BTreeMap::new();
        let mut requests = Vec::new();
        let mut files = std::mem::take(&mut sources.set.file);
        files.sort_by(|a, b| a.name().cmp(b.name()));
        for mut file in files {
            let package = file.package().to_owned();
            if self.is_extern(&format!(".{package}")) {
                file.service.clear();
            }
            let origin = origins.entry(module_path(&package)).or_insert((package, Vec::new()));
            origin.1.push(file.name().to_owned());
            requests.push((Module::from_protobuf_package_name(file.package()), file));
        }
        let mut generated = match config.generate(requests) {
            Ok(generated) => generated,
            Err(error) => {
                problems.borrow_mut().push(error.to_string());
                return Vec::new();
            }
        };
        let mut packages = Vec::new();
        for (module, (name, files)) in origins {
            let Some(text) = generated.remove(&Module::from_parts(module.clone())) else {
                continue;
            };
            let files: Vec<&str> = files.iter().map(String::as_str).collect();
            match format(&text, &files) {
                Ok(text) => packages.push(Package { name, module, text }),
                Err(error) => problems.borrow_mut().push(format!(
                    "package {name}: what was generated is no Rust: {error}; look at the attributes and \
                     extern paths given to the builder"
                )),
            }
        }
        packages
    }

    /// True of a package, type or service that the user has from elsewhere.
    pub(crate) fn is_extern(&self, full_name: &str) -> bool {
        let covers = |path: &str| {
            full_name
                .strip_prefix(path)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        covers(".google.protobuf") || self.extern_paths.keys().any(|path| covers(path))
    }

    pub(crate) fn service_name(&self, full_name: &str) -> Option<&str> {
        self.service_names.get(full_name).map(String::as_str)
    }

    pub(crate) fn method_name(&self, full_name: &str) -> Option<&str> {
        self.method_names.get(full_name).map(String::as_str)
    }

    /// Every rename and the kind of thing it is for.
    pub(crate) fn renames(&self) -> impl Iterator<Item = (&'static str, (&String, &String))> {
        let services = self.service_names.iter().map(|rename| ("service", rename));
        services.chain(self.method_names.iter().map(|rename| ("method", rename)))
    }
}
