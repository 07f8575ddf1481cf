//! With the feature `verbs`, says in one sentence which package is missing, before the build of the
//! binding crate says so in many. Without it, does nothing.

use std::path::Path;
use std::process::{Command, Stdio};

/// What the feature needs at build time: pkg-config's name of each, and the least version.
const LIBRARIES: [(&str, &str); 2] = [("libibverbs", "1.8.28"), ("librdmacm", "1.2.28")];

const PACKAGES: &str = "on Debian and Ubuntu: apt-get install pkg-config libibverbs-dev librdmacm-dev \
                        libclang-dev (see README.md, \"RDMA\"); or build without the feature `verbs`";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var_os("CARGO_FEATURE_VERBS").is_none() {
        return;
    }
    println!("cargo::rerun-if-env-changed=PKG_CONFIG");
    println!("cargo::rerun-if-env-changed=PKG_CONFIG_PATH");
    println!("cargo::rerun-if-env-changed=LIBCLANG_PATH");
    let pkg_config = std::env::var("PKG_CONFIG").unwrap_or_else(|_| "pkg-config".to_owned());
    for (library, version) in LIBRARIES {
        let asked = Command::new(&pkg_config)
            .args(["--atleast-version", version, library])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        match asked {
            Ok(status) if status.success() => {}
            Ok(_) => fail(&format!("the development files of {library} ({version} or newer)")),
            Err(_) => fail("the program pkg-config"),
        }
    }
    if !has_libclang() {
        println!(
            "cargo::warning=no libclang was found in the usual places, and the feature `verbs` needs \
             it; {PACKAGES}, or set LIBCLANG_PATH"
        );
    }
}

fn fail(missing: &str) {
    println!("cargo::error=the feature `verbs` needs {missing}, and it is not here; {PACKAGES}");
}

/// Whether a libclang is where the binding crate's generator looks first. It looks in more places, so
/// this decides nothing.
fn has_libclang() -> bool {
    let is_libclang = |folder: &Path| {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        entries.into_iter().any(|entry| entry.file_name().to_string_lossy().starts_with("libclang"))
    };
    if std::env::var_os("LIBCLANG_PATH").is_some() {
        return true;
    }
    let versions = std::fs::read_dir("/usr/lib").into_iter().flatten().flatten();
    let llvm = versions
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("llvm"))
        .map(|entry| entry.path().join("lib"));
    let usual = ["/usr/lib", "/usr/lib64", "/usr/local/lib", "/usr/lib/x86_64-linux-gnu"];
    usual.iter().map(|folder| Path::new(folder).to_owned()).chain(llvm).any(|f| is_libclang(&f))
}
