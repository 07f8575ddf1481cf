//! What `prost-build` and the compiler would not say, or would say far from the `.proto`: names that
//! collide, methods that cannot be, renames that hit nothing.

mod types;

use std::collections::{BTreeMap, HashMap};

use prost_types::{FileDescriptorProto, MethodDescriptorProto, ServiceDescriptorProto};

use crate::builder::Builder;
use crate::errors::Problems;
use crate::names::{is_rust_name, module_path, snake_name, type_name};
use crate::sources::Sources;

// Field numbers of google.protobuf's descriptors, which paths to places are made of.
const FILE_SERVICE: i32 = 6;
const SERVICE_METHOD: i32 = 2;
const METHOD_CLIENT_STREAMING: i32 = 5;
const METHOD_SERVER_STREAMING: i32 = 6;
const NAME: i32 = 1;

/// The one name a client has for itself, beside its methods.
const RESERVED_METHOD: &str = "new";

/// The Rust names of services and methods, by their full protobuf names (`.kv.v1.Kv.Get`).
#[derive(Debug, Default)]
pub(crate) struct RustNames {
    names: HashMap<String, String>,
}

impl RustNames {
    /// The name decided for a service or method.
    pub(crate) fn get(&self, proto: &str) -> Option<&str> {
        self.names.get(proto).map(String::as_str)
    }
}

/// A name in a module, and who has it.
#[derive(Clone)]
struct Owner {
    what: String,
    place: String,
}

struct Checker<'a> {
    builder: &'a Builder,
    sources: &'a Sources,
    problems: &'a mut Problems,
    /// The types and modules of each module.
    modules: BTreeMap<Vec<String>, HashMap<String, Owner>>,
    names: RustNames,
}

/// Checks everything; what is wrong goes to `problems`.
pub(crate) fn check(builder: &Builder, sources: &Sources, problems: &mut Problems) -> RustNames {
    let mut checker = Checker {
        builder,
        sources,
        problems,
        modules: BTreeMap::new(),
        names: RustNames::default(),
    };
    checker.packages();
    for file in &sources.set.file {
        checker.types(file);
    }
    for file in &sources.set.file {
        for (index, service) in (0..).zip(&file.service) {
            if !builder.is_extern(&full_name(file.package(), service.name())) {
                checker.service(file, service, index);
            }
        }
    }
    checker.renames();
    checker.names
}

/// `.package.Name`.
pub(crate) fn full_name(package: &str, name: &str) -> String {
    if package.is_empty() { format!(".{name}") } else { format!(".{package}.{name}") }
}

impl Checker<'_> {
    /// Packages are modules of the packages around them.
    fn packages(&mut self) {
        for file in &self.sources.set.file {
            let mut inner = module_path(file.package());
            while let Some(name) = inner.pop() {
                let owner = Owner {
                    what: format!("package {}", file.package()),
                    place: self.sources.place(file, &[&[2]]),
                };
                self.modules.entry(inner.clone()).or_default().entry(name).or_insert(owner);
            }
        }
    }

    fn service(
        &mut self,
        file: &FileDescriptorProto,
        service: &ServiceDescriptorProto,
        index: i32,
    ) {
        let path = [FILE_SERVICE, index];
        let full = full_name(file.package(), service.name());
        let place = self.sources.place(file, &[&[path.as_slice(), &[NAME]].concat(), &path]);
        let rust = self
            .builder
            .service_name(&full)
            .map_or_else(|| type_name(service.name()), str::to_owned);
        let module = self.modules.entry(module_path(file.package())).or_default();
        for (role, name) in [
            ("trait", rust.clone()),
            ("client", format!("{rust}Client")),
            ("server", format!("{rust}Server")),
        ] {
            let what = format!("the {role} of service {}", &full[1..]);
            if let Some(first) = module.get(&name) {
                self.problems.push(format!(
                    "{place}: {}: its {role} is `{name}` in Rust, and so is {} ({}); give the service \
                     another name with `Builder::rename_service(\"{full}\", \"{rust}Service\")`",
                    &full[1..], first.what, first.place
                ));
            } else {
                module.insert(name, Owner { what, place: place.clone() });
            }
        }
        self.methods(file, service, &full, &path);
        self.names.names.insert(full, rust);
    }

    fn methods(
        &mut self,
        file: &FileDescriptorProto,
        service: &ServiceDescriptorProto,
        service_name: &str,
        service_path: &[i32],
    ) {
        let mut taken: HashMap<String, (&str, String)> = HashMap::new();
        for (index, method) in (0..).zip(&service.method) {
            let path = [service_path, &[SERVICE_METHOD, index]].concat();
            let full = format!("{service_name}.{}", method.name());
            let place = self.sources.place(file, &[&[&path[..], &[NAME]].concat(), &path]);
            let rust = self
                .builder
                .method_name(&full)
                .map_or_else(|| snake_name(method.name()), str::to_owned);
            let another = format!(
                "give it another name with `Builder::rename_method(\"{full}\", \"{}\")`",
                free_name(&rust, &service.method)
            );
            if rust == RESERVED_METHOD {
                self.problems.push(format!(
                    "{place}: {}: it is `new` in Rust, and that makes the client; {another}",
                    &full[1..]
                ));
            }
            if let Some((first, first_place)) = taken.get(&rust) {
                self.problems.push(format!(
                    "{place}: {}: it is `{rust}` in Rust, and so is {first} ({first_place}); {another}",
                    &full[1..]
                ));
            } else {
                taken.insert(rust.clone(), (method.name(), place));
            }
            self.streaming(file, method, &full, &path);
            self.names.names.insert(full, rust);
        }
    }

    fn streaming(
        &mut self,
        file: &FileDescriptorProto,
        method: &MethodDescriptorProto,
        full: &str,
        path: &[i32],
    ) {
        let (what, field) = match (method.client_streaming(), method.server_streaming()) {
            (false, false) => return,
            (true, false) => ("streams requests", METHOD_CLIENT_STREAMING),
            (false, true) => ("streams responses", METHOD_SERVER_STREAMING),
            (true, true) => ("streams both ways", METHOD_CLIENT_STREAMING),
        };
        let place = self
            .sources
            .place(file, &[&[path, &[field]].concat(), &[path, &[NAME]].concat(), path]);
        self.problems.push(format!(
            "{place}: {}: the method {what}, and streaming methods are not supported yet; \
             accepted are methods with one request and one response, without `stream`",
            &full[1..]
        ));
    }

    /// A rename that names nothing is a slip of the pen.
    fn renames(&mut self) {
        for (kind, (proto, rust)) in self.builder.renames() {
            if !is_rust_name(rust) {
                self.problems.push(format!(
                    "Builder::rename_{kind}(\"{proto}\", \"{rust}\"): `{rust}` cannot be a name in Rust; \
                     a keyword is written `r#keyword`"
                ));
            }
            if self.names.get(proto).is_none() {
                let full =
                    if proto.starts_with('.') { "" } else { "; full names begin with a dot" };
                self.problems.push(format!(
                    "Builder::rename_{kind}(\"{proto}\", \"{rust}\"): no {kind} has this name{full}"
                ));
            }
        }
    }
}

/// A name to suggest: `create` for `new`, otherwise the name and a number.
fn free_name(rust: &str, methods: &[MethodDescriptorProto]) -> String {
    let base = rust.trim_start_matches("r#");
    let taken = |name: &str| methods.iter().any(|method| snake_name(method.name()) == name);
    if base == RESERVED_METHOD && !taken("create") {
        return "create".to_owned();
    }
    (2..).map(|n| format!("{base}_{n}")).find(|name| !taken(name)).unwrap_or_default()
}
