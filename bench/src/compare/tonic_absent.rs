//! In tonic's place, in a program that was built without it.

use std::path::Path;

use super::service::Blob;
use crate::failure::Failure;

/// There is none.
#[derive(Clone)]
pub(crate) enum Client {}

fn absent() -> Failure {
    Failure::new("this program was built without the feature `tonic`")
}

pub(super) fn settings() -> String {
    "not built in".to_owned()
}

pub(super) async fn serve(_socket: Option<&Path>) -> Result<(), Failure> {
    Err(absent())
}

impl Client {
    pub(super) async fn connect(_address: &str, _unix: bool) -> Result<Self, Failure> {
        Err(absent())
    }

    pub(super) async fn call<Q>(&self, _path: &'static str, _request: Q) -> Result<Blob, Failure> {
        match *self {}
    }
}
