"""Real clusters of two machines on the loopback device: Ray and Slurm. They end with the block that starts them."""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

# Ray's only way to stay on the loopback device; it must be set before ray is imported.
LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_USAGE_STATS_ENABLED": "0"}
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch")


@contextmanager
def ray_cluster() -> Iterator[Any]:
    """A cluster of two machines on 127.0.0.1: the head with two CPUs, and another with one that may be lost."""
    os.environ.update(LOOPBACK)
    pytest.importorskip("ray", reason="ray is not installed")
    from ray.cluster_utils import Cluster

    small = {"num_cpus": 1, "object_store_memory": 100_000_000, "node_ip_address": "127.0.0.1"}
    quick = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 500, "health_check_failure_threshold": 4}
    # With `quick`, a lost machine is noticed in 2 s.
    head = {**small, "num_cpus": 2, "include_dashboard": False, "_system_config": quick}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        cluster.add_node(**small)
        yield cluster
    finally:
        cluster.shutdown()


@contextmanager
def slurm_cluster(folder: Path) -> Iterator[None]:
    """munge, a controller and two machines with one CPU each. Commands find them by SLURM_CONF."""
    missing = [name for name in PROGRAMS if shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin") is None]
    if missing or os.getuid() != 0:
        pytest.skip(f"Slurm cannot be started: {', '.join(missing) or 'it needs the root user'}")
    pytest.importorskip("submitit", reason="submitit is not installed")
    folder.chmod(0o755)
    ports = free_ports(3)
    (folder / "slurm.conf").write_text(CONFIG.format(folder=folder, ports=ports))
    (folder / "munge.key").write_bytes(os.urandom(1024))
    (folder / "munge.key").chmod(0o600)
    (folder / "state").mkdir()
    commands = [
        ["munged", "--foreground", "--force", "--num-threads=1", f"--key-file={folder}/munge.key"]
        + [f"--{name}={folder}/munge.{name}" for name in ("socket", "pid-file", "log-file", "seed-file")],
        ["slurmctld", "-D", "-i"],
        ["slurmd", "-D", "-N", "node1"],
        ["slurmd", "-D", "-N", "node2"],
    ]
    started = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLURM_CONF", str(folder / "slurm.conf"))
        patch.setenv("PATH", f"{os.environ['PATH']}:/usr/sbin")
        try:
            for number, words in enumerate(commands):
                with (folder / f"{number}-{words[0]}.log").open("w") as log:
                    started.append(subprocess.Popen(words, stdout=log, stderr=log, start_new_session=True))
                time.sleep(0.3)
            until("the machines of Slurm", lambda: idle_machines() == 2, 30)
            yield
        finally:
            subprocess.run(["scancel", "--user=root"], timeout=20)
            for process in reversed(started):
                process.terminate()
            for process in started:
                process.wait(30)


def idle_machines() -> int:
    found = subprocess.run(["sinfo", "-h", "-N", "-o", "%T"], capture_output=True, text=True, timeout=20)
    return found.stdout.split().count("idle")


def until(what: str, happens: Any, seconds: float = 120, every: float = 0.1) -> Any:
    """Waits until `happens` returns something true."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := happens():
            return found
        time.sleep(every)
    pytest.fail(f"no sign of {what} in {seconds} s")


def free_ports(number: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


CONFIG = """
ClusterName=loopback
SlurmctldHost=localhost(127.0.0.1)
SlurmUser=root
SlurmdUser=root
SlurmctldPort={ports[0]}
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
StateSaveLocation={folder}/state
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmdSpoolDir={folder}/spool-%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=sched_interval=1,bf_interval=1,requeue_setup_env_fail
MpiDefault=none
ReturnToService=2
KillWait=20
NodeName=node1 NodeAddr=127.0.0.1 NodeHostname=localhost Port={ports[1]} CPUs=1
NodeName=node2 NodeAddr=127.0.0.1 NodeHostname=localhost Port={ports[2]} CPUs=1
PartitionName=small Nodes=node1,node2 Default=YES MaxTime=10 State=UP
"""
