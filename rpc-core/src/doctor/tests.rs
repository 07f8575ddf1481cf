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
    Doctor::in_folder(folder.path().to_owned()).budget_bytes(1 << 20)
}

/// In a program that is built without RDMA.
fn without_verbs(mut doctor: Doctor) -> Doctor {
    doctor.wanted.built = false;
    doctor
}

fn address(text: &str) -> Address {
    Address::parse(text).unwrap()
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
    let report = doctor(&folder).address(&address("rdma://h:1")).examine();
    assert!(only_error(&report).fix.contains("modprobe ib_uverbs"));
    let report = doctor(&folder).address(&address("auto://h:1?gid_index=3")).examine();
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
    let fix = |options: &str| {
        let report = doctor(&folder).address(&address(&format!("rdma://h:1?{options}"))).examine();
        only_error(&report).fix.clone()
    };
    assert_eq!(fix("device=mlx5_0"), "?device=rxe0");
    assert_eq!(fix("device=rxe0&device_port=2"), "?device_port=1");
    assert_eq!(fix("device_port=2"), "?device_port=1");
    assert!(fix("gid_index=7").starts_with("?gid_index=1 (10.77.0.1),"));
    assert!(fix("gid_index=2").starts_with("?gid_index=1 (10.77.0.1),"), "one that is not in use");
}

/// Whether it leads there, connecting shows.
#[test]
fn a_gid_that_may_not_lead_to_the_server_is_a_warning_with_one_that_does() {
    let folder = with_rxe();
    let warnings = |text: &str| {
        let report = doctor(&folder).address(&address(text)).examine();
        assert!(report.is_healthy(), "{report:#?}");
        let of_it = report.problems.into_iter().filter(|problem| problem.of == "address");
        of_it.map(|problem| (problem.cause, problem.fix)).collect::<Vec<_>>()
    };
    assert_eq!(warnings("rdma://10.77.0.2:1?gid_index=1"), []);
    assert_eq!(warnings("rdma://h:1?gid_index=1"), []);
    let local = &warnings("rdma://10.77.0.2:1?gid_index=0")[0];
    assert!(local.0.contains("link-local") && local.1.starts_with("?gid_index=1 "), "{local:?}");
    let other = &warnings("rdma://[2001:db8::2]:1?gid_index=1")[0];
    assert!(other.0.contains("2001:db8::2"), "{other:?}");
}

/// `ip link set` mends an interface that is down, and neither one without a cable nor the other end of a pair.
#[test]
fn a_port_without_a_link_is_told_apart_from_one_whose_interface_is_down() {
    let net = |file: &str| format!("sys/class/net/{file}");
    let cases = [
        ("0x1002", "", "", "ip link set eth0 up"),
        ("0x1003", "0", "", "the cable, or the port at its other end; ethtool eth0"),
        ("0x1003", "0", "0x1002", "ip link set veth9 up"),
        ("0x1003", "0", "0x1003", "the cable, or the port at its other end; ethtool eth0"),
    ];
    for (flags, carrier, other, fix) in cases {
        let folder = with_rxe();
        let write = |file: &str, text: &str| write(folder.path(), file, text);
        write(&format!("{PORT}/state"), "1: DOWN\n");
        write(&net("eth0/flags"), flags);
        write(&net("eth0/carrier"), carrier);
        write(&net("eth0/ifindex"), "2");
        write(&net("eth0/iflink"), if other.is_empty() { "2" } else { "3" });
        if !other.is_empty() {
            write(&net("veth9/flags"), other);
            write(&net("veth9/ifindex"), "3");
            write(&net("veth9/iflink"), "2");
        }
        let report = doctor(&folder).examine();
        assert!(only_error(&report).fix.starts_with(fix), "{fix}: {report:#?}");
    }
}

#[test]
fn a_machine_without_a_device_is_told_how_to_make_one_unless_nothing_asks_for_it() {
    let files = [
        ("sys/class/net/lo/flags", "0x9"),
        ("sys/class/net/ens4/flags", "0x1003"),
        ("sys/module/rdma_rxe/initstate", "live"),
    ];
    let folder = machine(&files);
    let report = doctor(&folder).examine();
    assert_eq!(report.problems.len(), 1, "{report:#?}");
    assert_eq!(report.problems[0].severity, Severity::Note);
    let unbuilt = without_verbs(doctor(&folder).rebuild("make rdma")).examine();
    assert!(unbuilt.problems[0].fix.ends_with("and then make rdma"), "{unbuilt:#?}");
    let report = doctor(&folder).address(&address("rdma://h:1")).examine();
    assert!(only_error(&report).fix.contains("rdma link add rxe0 type rxe netdev ens4"));
    let report = doctor(&folder).address(&address("soft://h:1")).examine();
    assert!(report.problems.is_empty(), "{report:#?}");
}

#[test]
fn the_interface_of_a_device_is_that_of_its_gids_or_its_parent() {
    let folder = with_rxe();
    assert_eq!(doctor(&folder).interface_of("rxe0").as_deref(), Some("eth0"));
    for file in ["gid_attrs/ndevs/0", "gid_attrs/ndevs/1"] {
        fs::remove_file(folder.path().join(PORT).join(file)).unwrap();
    }
    assert_eq!(doctor(&folder).interface_of("rxe0").as_deref(), Some("eth0"));
    assert_eq!(doctor(&folder).interface_of("none_0"), None);
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

/// Each is an error where RDMA can be used and may be.
#[test]
fn troubles_of_devices_are_notes_for_who_does_not_use_them() {
    let folder = with_rxe();
    fs::remove_file(folder.path().join("dev/infiniband/uverbs0")).unwrap();
    write(folder.path(), &format!("{PORT}/state"), "1: DOWN\n");
    write(folder.path(), "sys/class/net/eth0/mtu", "576\n");
    let errors = |report: &Report| {
        report.problems.iter().filter(|problem| problem.severity == Severity::Error).count()
    };
    for text in ["auto://h:1", "rdma://h:1"] {
        assert_eq!(errors(&doctor(&folder).address(&address(text)).examine()), 2, "{text}");
    }
    let soft = doctor(&folder).address(&address("soft://h:1")).examine();
    assert_eq!(soft.problems.len(), 3);
    assert!(soft.problems.iter().all(|problem| problem.severity == Severity::Note), "{soft:#?}");
    let bare = without_verbs(doctor(&folder)).examine();
    assert!(bare.is_healthy(), "{bare:#?}");
    assert_eq!(bare.problems[0].severity, Severity::Warning, "it could do better: {bare:#?}");
}

#[test]
fn a_program_without_rdma_is_the_one_error_of_an_address_of_rdma() {
    for folder in [with_rxe(), machine(&[])] {
        let report = without_verbs(doctor(&folder).address(&address("rdma://h:1?device=none9")));
        let report = report.rebuild("make rdma").examine();
        let error = only_error(&report);
        assert!(error.of == "program" && error.fix == "make rdma", "{report:#?}");
    }
}

#[test]
fn a_machine_without_a_device_is_one_error_for_an_address_that_must_have_the_one_it_names() {
    let report = doctor(&machine(&[])).address(&address("rdma://h:1?device=rxe0")).examine();
    assert!(only_error(&report).what.starts_with("there is no RDMA device, and"), "{report:#?}");
    let report = doctor(&machine(&[])).address(&address("auto://h:1?device=rxe0")).examine();
    let named = report.problems.iter().find(|problem| problem.what.contains("\"rxe0\""));
    assert_eq!(named.map(|problem| problem.severity), Some(Severity::Warning), "{report:#?}");
    assert!(report.is_healthy(), "the software device carries what auto:// cannot have otherwise");
}

/// A second device, whose only GID has index 7.
fn with_second(root: &Path) {
    const SECOND: &str = "sys/class/infiniband/rxe1/ports/1";
    for (file, text) in [
        ("state", "4: ACTIVE\n"),
        ("link_layer", "Ethernet\n"),
        ("gids/7", "0000:0000:0000:0000:0000:ffff:0a4d:0002\n"),
        ("gid_attrs/types/7", "RoCE v2\n"),
        ("gid_attrs/ndevs/7", "eth1\n"),
    ] {
        write(root, &format!("{SECOND}/{file}"), text);
    }
    write(root, "sys/class/infiniband_verbs/uverbs1/ibdev", "rxe1\n");
    write(root, "dev/infiniband/uverbs1", "");
}

#[test]
fn a_gid_index_without_a_device_is_an_error_if_no_port_has_it() {
    let folder = with_rxe();
    with_second(folder.path());
    let of = |options: &str| {
        doctor(&folder).address(&address(&format!("rdma://10.77.0.9:1?{options}"))).examine()
    };
    for options in ["gid_index=1", "gid_index=7", "device=rxe1&gid_index=7"] {
        assert_eq!(of(options).problems, [], "{options}");
    }
    assert!(only_error(&of("gid_index=9")).what.contains("none of the 2 ports"));
    assert!(only_error(&of("device=rxe0&gid_index=7")).what.contains("port 1 of rxe0"));
}

/// In a container, or on a small kernel, the command alone would fail.
#[test]
fn a_kernel_without_the_module_of_software_devices_is_named() {
    let release = ("proc/sys/kernel/osrelease", "6.1.0-9\n");
    let fix = |more: &[(&str, &str)]| {
        let folder = machine(&[&[release], more].concat());
        doctor(&folder).examine().problems[0].fix.clone()
    };
    let without = fix(&[("lib/modules/6.1.0-9/modules.dep", "kernel/rdma_rxe_not.ko:\n")]);
    assert!(without.starts_with("this kernel, 6.1.0-9, lacks the module rdma_rxe"), "{without}");
    let unseen = fix(&[]);
    assert!(unseen.contains("cannot be told from here"), "{unseen}");
    assert!(without.contains("linux-modules-extra-6.1.0-9 on Ubuntu"), "{without}");
    assert!(fix(&[("run/.containerenv", "")]).contains("on the host, as root, modprobe rdma_rxe"));
    let sw = "kernel/drivers/infiniband/sw/rxe/rdma_rxe.ko";
    for (file, text) in [
        ("sys/module/rdma_rxe/initstate", "live"),
        (&*format!("lib/modules/6.1.0-9/{sw}.xz"), ""),
        ("lib/modules/6.1.0-9/modules.builtin", &*format!("kernel/a.ko\n{sw}\n")),
        ("lib/modules/6.1.0-9/modules.dep", "updates/dkms/rdma_rxe.ko.zst: kernel/b.ko\n"),
    ] {
        let with = fix(&[(file, text)]);
        assert!(with.starts_with("as root: rdma link add rxe0 type rxe netdev"), "{file}: {with}");
    }
}

#[test]
fn of_very_many_devices_some_are_looked_at_and_the_one_that_is_named() {
    let folder = tempfile::tempdir().unwrap();
    for number in 0..200 {
        let port = format!("sys/class/infiniband/vf_{number}/ports/1");
        write(folder.path(), &format!("{port}/state"), "1: DOWN\n");
        write(folder.path(), &format!("{port}/link_layer"), "Ethernet\n");
        let file = format!("sys/class/infiniband_verbs/uverbs{number}/ibdev");
        write(folder.path(), &file, &format!("vf_{number}\n"));
        write(folder.path(), &format!("dev/infiniband/uverbs{number}"), "");
    }
    let report = doctor(&folder).address(&address("auto://h:1?device=vf_199")).examine();
    assert!(
        report
            .facts
            .iter()
            .any(|fact| fact.value.ends_with("and 168 more, which are not looked at"))
    );
    let kinds = report.facts.iter().filter(|fact| fact.name == "kind");
    let kinds: Vec<&str> = kinds.map(|fact| &*fact.of).collect();
    assert_eq!((kinds.len(), kinds[0], kinds[1]), (32, "device vf_199", "device vf_0"));
    assert!(!report.problems.iter().any(|problem| problem.of == "address"));
}

/// Of all that it advises nothing is left to be filled in.
#[test]
fn what_is_advised_about_old_roce_is_a_command_that_works() {
    let folder = with_rxe();
    write(folder.path(), &format!("{PORT}/gid_attrs/types/1"), "IB/RoCE v1\n");
    let report = doctor(&folder).examine();
    assert!(report.problems[0].fix.contains("ethtool -i eth0"), "{report:#?}");
}
