//! Names of messages, enums and what is in them, as `prost-build` gives them. Two that are one in Rust
//! would be an error of the compiler far from the `.proto`, or a panic.

use std::collections::HashMap;

use prost_types::{
    DescriptorProto, EnumDescriptorProto, FieldDescriptorProto, FileDescriptorProto,
};

use super::{Checker, NAME, Owner, full_name};
use crate::names::{module_path, snake_name, type_name, variant_name};

// Field numbers of google.protobuf's descriptors.
const FILE_MESSAGE: i32 = 4;
const FILE_ENUM: i32 = 5;
const MESSAGE_FIELD: i32 = 2;
const MESSAGE_NESTED: i32 = 3;
const MESSAGE_ENUM: i32 = 4;
const MESSAGE_ONEOF: i32 = 8;
const ENUM_VALUE: i32 = 2;

/// Where a type stands: the file, the Rust module, and the protobuf name of what is around it.
struct Scope<'a> {
    file: &'a FileDescriptorProto,
    module: Vec<String>,
    proto: String,
}

impl Scope<'_> {
    fn inside(&self, message: &str) -> Self {
        let mut module = self.module.clone();
        module.push(snake_name(message));
        Self { file: self.file, module, proto: self.name_of(message) }
    }

    /// The protobuf name of a thing in this scope, without a dot in front.
    fn name_of(&self, name: &str) -> String {
        full_name(&self.proto, name)[1..].to_owned()
    }
}

impl Checker<'_> {
    /// The messages and enums of a file, but for those that the user has from elsewhere.
    pub(super) fn types(&mut self, file: &FileDescriptorProto) {
        let package = file.package().to_owned();
        let scope = Scope { file, module: module_path(&package), proto: package };
        for (index, message) in (0..).zip(&file.message_type) {
            self.message(&scope, message, &[FILE_MESSAGE, index]);
        }
        for (index, enumeration) in (0..).zip(&file.enum_type) {
            self.enumeration(&scope, enumeration, &[FILE_ENUM, index]);
        }
    }

    fn message(&mut self, scope: &Scope<'_>, message: &DescriptorProto, path: &[i32]) {
        let name = scope.name_of(message.name());
        // Nothing is generated for it, nor for what is nested in it.
        if self.builder.is_extern(&format!(".{name}")) {
            return;
        }
        self.claim(scope, type_name(message.name()), &format!("message {name}"), path);
        if has_module(message) {
            let what = format!("the module of message {}", message.name());
            self.claim(scope, snake_name(message.name()), &what, path);
        }
        let inner = scope.inside(message.name());
        for (index, nested) in (0..).zip(&message.nested_type) {
            if !is_map_entry(nested) {
                self.message(&inner, nested, &[path, &[MESSAGE_NESTED, index]].concat());
            }
        }
        for (index, enumeration) in (0..).zip(&message.enum_type) {
            self.enumeration(&inner, enumeration, &[path, &[MESSAGE_ENUM, index]].concat());
        }
        self.fields(&inner, message, path);
    }

    /// Fields, oneofs, and the variants of these.
    fn fields(&mut self, scope: &Scope<'_>, message: &DescriptorProto, path: &[i32]) {
        let of = |index: i32| [path, &[MESSAGE_FIELD, index]].concat();
        let mut names = HashMap::new();
        for (index, field) in (0..).zip(&message.field) {
            if oneof_of(field).is_none() {
                let what = format!("field {}", scope.name_of(field.name()));
                self.member(scope, &mut names, snake_name(field.name()), &what, &of(index));
            }
        }
        for (number, oneof) in (0..).zip(&message.oneof_decl) {
            let fields = || (0..).zip(&message.field).filter(|(_, f)| oneof_of(f) == Some(number));
            if fields().next().is_none() {
                continue;
            }
            let path = [path, &[MESSAGE_ONEOF, number]].concat();
            let what = format!("oneof {}", scope.name_of(oneof.name()));
            self.member(scope, &mut names, snake_name(oneof.name()), &what, &path);
            self.claim(scope, oneof_name(oneof.name(), message), &what, &path);
            let mut variants = HashMap::new();
            for (index, field) in fields() {
                let what = format!("field {}", scope.name_of(field.name()));
                self.member(scope, &mut variants, type_name(field.name()), &what, &of(index));
            }
        }
    }

    fn enumeration(&mut self, scope: &Scope<'_>, found: &EnumDescriptorProto, path: &[i32]) {
        let name = scope.name_of(found.name());
        if self.builder.is_extern(&format!(".{name}")) {
            return;
        }
        self.claim(scope, type_name(found.name()), &format!("enum {name}"), path);
        let mut numbers = Vec::new();
        let mut variants = HashMap::new();
        for (index, value) in (0..).zip(&found.value) {
            // A second name of a number is left out of the Rust enum.
            if numbers.contains(&value.number()) {
                continue;
            }
            numbers.push(value.number());
            let rust = variant_name(found.name(), value.name());
            let what = format!("value {name}.{}", value.name());
            let path = [path, &[ENUM_VALUE, index]].concat();
            self.member(scope, &mut variants, rust, &what, &path);
        }
    }

    /// Gives a name of a module to a type; a second one is a problem.
    fn claim(&mut self, scope: &Scope<'_>, rust: String, what: &str, path: &[i32]) {
        let mut names = self.modules.remove(&scope.module).unwrap_or_default();
        self.member(scope, &mut names, rust, what, path);
        self.modules.insert(scope.module.clone(), names);
    }

    fn member(
        &mut self,
        scope: &Scope<'_>,
        names: &mut HashMap<String, Owner>,
        rust: String,
        what: &str,
        path: &[i32],
    ) {
        let place = self.sources.place(scope.file, &[&[path, &[NAME]].concat(), path]);
        if let Some(first) = names.get(&rust) {
            self.problems.push(format!(
                "{place}: {what}: it is `{rust}` in Rust, and so is {} ({}); rename one of them",
                first.what, first.place
            ));
        } else {
            names.insert(rust, Owner { what: what.to_owned(), place });
        }
    }
}

fn is_map_entry(message: &DescriptorProto) -> bool {
    message.options.as_ref().is_some_and(|options| options.map_entry())
}

/// The oneof that a field is in. That around a proto3 `optional` field is not written by anyone and
/// makes no type.
fn oneof_of(field: &FieldDescriptorProto) -> Option<i32> {
    field.oneof_index.filter(|_| !field.proto3_optional())
}

/// A message with types inside has a module for them. Entries of maps are no types in Rust.
fn has_module(message: &DescriptorProto) -> bool {
    !message.enum_type.is_empty()
        || message.field.iter().any(|field| oneof_of(field).is_some())
        || message.nested_type.iter().any(|nested| !is_map_entry(nested))
}

/// The type of a oneof. One that is called like a type beside it gets another name.
fn oneof_name(proto: &str, message: &DescriptorProto) -> String {
    let rust = type_name(proto);
    let nested = message.nested_type.iter().map(|nested| nested.name());
    let mut types = nested.chain(message.enum_type.iter().map(|inner| inner.name()));
    if types.any(|other| type_name(other) == rust) { format!("{rust}OneOf") } else { rust }
}
