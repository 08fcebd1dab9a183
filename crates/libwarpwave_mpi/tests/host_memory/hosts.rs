//! Two hosts simulated with network namespaces: two ranks on each, connected by TCP.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use crate::common::{Kind, Mpi, full, require, seed};

const ADDRESSES: [&str; 2] = ["10.77.0.1", "10.77.0.2"];

/// The hosts, removed when dropped.
struct Hosts {
    names: [String; 2],
    folder: tempfile::TempDir,
}

fn ip(arguments: &str) -> bool {
    Command::new("ip").args(arguments.split(' ')).output().is_ok_and(|output| output.status.success())
}

impl Hosts {
    fn new() -> Option<Hosts> {
        let id = std::process::id();
        let names = [format!("wwa{id}"), format!("wwb{id}")];
        let folder = tempfile::tempdir().unwrap();
        if !require(ip(&format!("netns add {}", names[0])), "network namespaces (root and iproute2)") {
            return None;
        }
        let hosts = Hosts { names, folder };
        let [a, b] = &hosts.names;
        assert!(ip(&format!("netns add {b}")));
        assert!(ip(&format!("link add va{id} netns {a} type veth peer name va{id} netns {b}")), "cannot connect the namespaces");
        for (name, address) in hosts.names.iter().zip(ADDRESSES) {
            assert!(ip(&format!("-n {name} addr add {address}/24 dev va{id}")));
            assert!(ip(&format!("-n {name} link set va{id} up")) && ip(&format!("-n {name} link set lo up")));
        }
        // Called like a remote shell: options, host, command. Each host has its own name and shared memory.
        let agent = format!(
            "#!/bin/bash\nwhile [[ $1 == -* ]]; do shift; done\ncase $1 in {}) n={a};; {}) n={b};; *) exit 255;; esac\nshift\n\
             exec ip netns exec $n unshare --uts --mount bash -c \"hostname $n; mount -t tmpfs tmpfs /dev/shm; $*\"\n",
            ADDRESSES[0], ADDRESSES[1]
        );
        std::fs::write(hosts.agent(), agent).unwrap();
        std::fs::set_permissions(hosts.agent(), Permissions::from_mode(0o755)).unwrap();
        Some(hosts)
    }

    fn agent(&self) -> PathBuf {
        self.folder.path().join("agent")
    }

    /// Returns the arguments of `mpirun` that start ranks on both hosts.
    fn mpirun_args(&self, kind: Kind) -> Vec<String> {
        let agent = self.agent().display().to_string();
        let line = match kind {
            Kind::OpenMpi => format!(
                "--mca plm_rsh_agent {agent} --mca oob_tcp_if_include 10.77.0.0/24 --mca btl_tcp_if_include 10.77.0.0/24 \
                 --mca btl tcp,self,vader --host {}:2,{}:2 --bind-to none",
                ADDRESSES[0], ADDRESSES[1]
            ),
            Kind::Mpich => {
                let id = std::process::id();
                format!("-launcher rsh -launcher-exec {agent} -hosts {}:2,{}:2 -iface va{id}", ADDRESSES[0], ADDRESSES[1])
            }
        };
        line.split_whitespace().map(str::to_owned).collect()
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        self.names.iter().for_each(|name| _ = ip(&format!("netns del {name}")));
    }
}

#[test]
fn four_ranks_on_two_hosts() {
    let Some(hosts) = Hosts::new() else { return };
    let seed = seed();
    for mpi in Mpi::all() {
        let program = mpi.compile("matrix.c", &[]);
        for algorithm in ["hierarchical", "ring", "rabenseifner", "auto"] {
            let sample = if full() { 4 } else { 60 };
            let arguments = format!("--short --base 20000 --sample {sample} --seed {seed}");
            let run = mpi.run(&program, 4).preloaded(algorithm).args(arguments.split(' ')).variable("WARPWAVE_MPI_DEBUG", "1");
            let ended = run.through(vec![hosts.agent().display().to_string(), ADDRESSES[0].to_owned()], hosts.mpirun_args(mpi.kind)).go();
            let right = ended.success && ended.out.lines().any(|line| line.starts_with("cases ") && line.contains(" wrong 0 "));
            ended.check(right, &format!("{:?}, {algorithm}", mpi.kind));
            if algorithm == "hierarchical" {
                ended.check(ended.err.contains(": hierarchical (WARPWAVE_MPI_ALGO, 2 nodes)"), "the ranks do not see two hosts");
            }
            if algorithm != "auto" {
                ended.check_handled(4, algorithm, 1);
            }
            println!("{:?}, {algorithm}: {:.1} s", mpi.kind, ended.took.as_secs_f64());
        }
    }
}
