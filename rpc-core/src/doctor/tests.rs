use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::*;

/// Writes the files of a machine, as the kernel would have them.
fn machine(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (path, text) in files {
        write(folder.path(), path, text);
    }
    folder
}

fn write(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

const PORT: &str = "sys/class/infiniband/rxe0/ports/1";

/// A healthy machine with soft-RoCE on eth0.
fn with_rxe() -> tempfile::TempDir {
    let port = |file: &str| format!("{PORT}/{file}");
    let files = [
        ("sys/class/infiniband/rxe0/parent".to_owned(), "eth0\n"),
        ("sys/class/infiniband_verbs/uverbs0/ibdev".to_owned(), "rxe0\n"),
        ("dev/infiniband/uverbs0".to_owned(), ""),
        ("sys/module/ib_uverbs/initstate".to_owned(), "live\n"),
        ("sys/class/net/eth0/mtu".to_owned(), "1500\n"),
        (port("state"), "4: ACTIVE\n"),
        (port("rate"), "2.5 Gb/sec (1X SDR)\n"),
        (port("link_layer"), "Ethernet\n"),
        (port("gids/0"), "fe80:0000:0000:0000:5054:00ff:fe12:3456\n"),
        (port("gid_attrs/types/0"), "RoCE v2\n"),
        (port("gid_attrs/ndevs/0"), "eth0\n"),
        (port("gids/1"), "0000:0000:0000:0000:0000:ffff:0a4d:0001\n"),
        (port("gid_attrs/types/1"), "RoCE v2\n"),
        (port("gid_attrs/ndevs/1"), "eth0\n"),
        (port("gids/2"), "0000:0000:0000:0000:0000:0000:0000:0000\n"),
    ];
    machine(&files.each_ref().map(|(path, text)| (path.as_str(), *text)))
}

/// A small budget: the limits of whoever runs the tests are not what they are about.
fn doctor(folder: &tempfile::TempDir) -> Doctor {
    Doctor::in_folder(folder.path().to_owned()).budget_bytes(1)
}

/// The problems that say `part` of what is wrong, and none else of that severity but those that any build
/// may have.
fn only_error(report: &Report) -> &Problem {
    let errors: Vec<_> =
        report.problems.iter().filter(|problem| problem.severity == Severity::Error).collect();
    assert_eq!(errors.len(), 1, "{:#?}", report.problems);
    errors[0]
}

#[test]
fn a_healthy_machine_has_facts_and_no_error() {
    let report = doctor(&with_rxe()).examine();
    assert!(report.is_healthy(), "{:#?}", report.problems);
    let has = |of: &str, name: &str, part: &str| {
        let found =
            report.facts.iter().any(|f| f.of == of && f.name == name && f.value.contains(part));
        assert!(found, "{of}, {name}: {part:?} is not in {:#?}", report.facts);
    };
    has("machine", "RDMA devices", "rxe0");
    has("device rxe0", "kind", "soft-RoCE over eth0");
    has("device rxe0, port 1", "state", "ACTIVE, Ethernet, 2.5 Gb/sec");
    has("device rxe0, port 1", "GID", "1: 10.77.0.1, RoCE v2");
    has("device rxe0, port 1", "MTU", "1500 bytes of eth0, which is 1024 for RDMA");
}

#[test]
fn a_machine_without_rdma_is_healthy_and_says_what_it_uses() {
    let report = doctor(&machine(&[])).examine();
    assert!(report.is_healthy(), "{:#?}", report.problems);
    assert!(report.facts.iter().any(|fact| fact.value.contains("soft:// is what there is")));
}

#[test]
fn a_machine_without_rdma_is_not_what_rdma_addresses_and_options_ask_for() {
    let folder = machine(&[]);
    let report = doctor(&folder).insists_on_rdma(true).examine();
    assert!(only_error(&report).fix.contains("modprobe ib_uverbs"));
    let options = RdmaOptions { gid_index: Some(3), ..RdmaOptions::default() };
    let report = doctor(&folder).rdma(options).examine();
    assert!(report.is_healthy() && report.problems[0].what.contains("options"), "{report:?}");
}

/// Each with the words that say what is wrong, and those that mend it.
#[test]
fn each_thing_that_is_broken_is_named_with_what_mends_it() {
    type Break = fn(&Path);
    let state = |root: &Path| write(root, &format!("{PORT}/state"), "1: DOWN\n");
    let cases: [(Break, &str, &str); 5] = [
        (state, "its state is DOWN", "ip link set eth0 up"),
        (
            |root| fs::remove_dir_all(root.join("sys/class/infiniband_verbs")).unwrap(),
            "lets no program use them",
            "modprobe ib_uverbs",
        ),
        (
            |root| fs::remove_file(root.join("dev/infiniband/uverbs0")).unwrap(),
            "uverbs0 is missing",
            "--device=/dev/infiniband/uverbs0",
        ),
        (
            |root| fs::remove_file(root.join(PORT).join("gids/1")).unwrap(),
            "no GID by which a peer",
            "ip addr add",
        ),
        (
            |root| {
                write(root, &format!("{PORT}/state"), "2: INIT\n");
                write(root, &format!("{PORT}/link_layer"), "InfiniBand\n");
            },
            "its state is INIT",
            "opensm",
        ),
    ];
    for (break_it, what, fix) in cases {
        let folder = with_rxe();
        break_it(folder.path());
        let report = doctor(&folder).examine();
        let problem = only_error(&report);
        assert!(problem.what.contains(what) && problem.fix.contains(fix), "{what}: {problem}");
        assert!(!problem.cause.is_empty());
    }
}

#[test]
fn a_device_file_that_this_user_may_not_open_is_named() {
    let folder = with_rxe();
    let file = folder.path().join("dev/infiniband/uverbs0");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o000)).unwrap();
    if fs::File::open(&file).is_ok() {
        return; // root may open anything
    }
    let report = doctor(&folder).examine();
    assert!(only_error(&report).fix.contains("udev rule"));
}

#[test]
fn what_an_address_names_and_is_not_there_is_named_with_what_is() {
    let folder = with_rxe();
    let with = |set: fn(&mut RdmaOptions)| {
        let mut options = RdmaOptions::default();
        set(&mut options);
        only_error(&doctor(&folder).rdma(options).examine()).fix.clone()
    };
    assert_eq!(with(|o| o.device = Some("mlx5_0".into())), "?device=rxe0");
    let port = with(|o| (o.device, o.device_port) = (Some("rxe0".into()), Some(2)));
    assert_eq!(port, "?device_port=1");
    assert!(with(|o| o.gid_index = Some(7)).starts_with("?gid_index=1,"));
    assert!(
        with(|o| o.gid_index = Some(2)).starts_with("?gid_index=1,"),
        "an entry that is not in use"
    );
}

#[test]
fn small_packets_and_old_roce_are_warnings() {
    let folder = with_rxe();
    write(folder.path(), "sys/class/net/eth0/mtu", "576\n");
    write(folder.path(), &format!("{PORT}/gid_attrs/types/1"), "IB/RoCE v1\n");
    let report = doctor(&folder).examine();
    assert!(report.is_healthy(), "{:#?}", report.problems);
    for part in ["its packets carry 256 bytes", "RoCE v1 alone"] {
        assert!(report.problems.iter().any(|problem| problem.what.contains(part)), "{part}");
    }
}
