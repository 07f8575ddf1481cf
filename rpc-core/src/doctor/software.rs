//! What it takes to make a software device of RDMA (soft-RoCE).

use super::files::Files;
use super::machine::container;
use super::netdev::Netdev;

/// Its kernel module, as a file.
const MODULE: &str = "rdma_rxe.ko";

/// The command that makes one.
pub(super) fn command(files: &Files) -> String {
    let netdev = Netdev::any(files).map_or_else(|| "eth0".to_owned(), |netdev| netdev.name);
    format!("rdma link add rxe0 type rxe netdev {netdev}")
}

/// How one is made here: the command, or what this kernel needs before it works.
pub(super) fn how(files: &Files) -> String {
    let command = command(files);
    let place = if container(files).is_some() { "on the host, as root" } else { "as root" };
    if has_module(files) {
        return format!("{place}: {command} for a software one");
    }
    let kernel = release(files);
    if !files.exists(&format!("/lib/modules/{kernel}")) {
        // A container sees the kernel and seldom its modules.
        return format!(
            "whether this kernel, {kernel}, has the module rdma_rxe of software ones cannot be told from here: {place}, \
             modprobe rdma_rxe, then {command}"
        );
    }
    format!(
        "this kernel, {kernel}, lacks the module rdma_rxe of software ones: {place}, install the rest of its modules \
         (linux-modules-extra-{kernel} on Ubuntu, linux-image-amd64 for a cloud kernel of Debian, \
         kernel-modules-extra on Fedora and RHEL) or boot a kernel that has it, then {command}"
    )
}

/// Whether the kernel has the module, or can load it.
pub(super) fn has_module(files: &Files) -> bool {
    if files.exists("/sys/module/rdma_rxe") {
        return true;
    }
    let folder = format!("/lib/modules/{}", release(files));
    // As it is, or compressed: .xz, .zst, .gz.
    let is_its = |name: &String| name.starts_with(MODULE);
    if files.names(&format!("{folder}/kernel/drivers/infiniband/sw/rxe")).iter().any(is_its) {
        return true;
    }
    let listed = |list: &str| {
        let list = files.read(&format!("{folder}/{list}"));
        list.is_some_and(|list| list.contains(&format!("/{MODULE}")))
    };
    listed("modules.builtin") || listed("modules.dep")
}

fn release(files: &Files) -> String {
    let release = files.read("/proc/sys/kernel/osrelease").filter(|release| !release.is_empty());
    release.unwrap_or_else(|| "of an unknown release".into())
}
