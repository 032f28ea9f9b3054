"""A fresh Debian root, made by debootstrap once and copied for each test; commands run in it."""

import os
import pathlib
import shutil
import subprocess

MOUNTS = (
    'mount -t proc proc "$0/proc" && mount -t tmpfs tmpfs "$0/dev/shm" && '
    'exec chroot "$0" sh -c "$1"'
)
ENVIRONMENT = {
    "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
    "DEBIAN_FRONTEND": "noninteractive",
    "LC_ALL": "C.UTF-8",
    "HOME": "/srv",
}


class CommandError(Exception):
    """A command in the root failed; the message has the end of what it printed."""


def codename():
    facts = dict(
        line.split("=", 1) for line in pathlib.Path("/etc/os-release").read_text().splitlines()
    )
    return facts["VERSION_CODENAME"].strip('"')


def make_base(base):
    """The pristine root: this machine's Debian, nothing in it but what apt itself needs."""
    if (base / ".complete").exists():
        return
    shutil.rmtree(base, ignore_errors=True)
    base.parent.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        ["debootstrap", "--variant=minbase", "--include=ca-certificates", codename(), str(base)],
        capture_output=True,
        text=True,
        timeout=900,
    )
    if done.returncode:
        raise CommandError(f"debootstrap: {done.stdout[-1500:]}{done.stderr[-500:]}")
    (base / ".complete").touch()


class Root:
    """A copy of the base, below `folder`, with this machine's package sources."""

    def __init__(self, base, folder):
        self.path = folder
        subprocess.run(["cp", "-a", str(base), str(folder)], check=True, timeout=300)
        (folder / "srv/packages").mkdir(parents=True)
        (folder / "etc/apt/sources.list").write_text("")
        for name in ("sources.list", "sources.list.d", "apt.conf.d"):
            source = pathlib.Path("/etc/apt") / name
            if source.is_dir():
                shutil.copytree(source, folder / "etc/apt" / name, dirs_exist_ok=True)
            elif source.exists():
                shutil.copy(source, folder / "etc/apt" / name)
        for name in ("resolv.conf", "hosts"):
            shutil.copy(f"/etc/{name}", folder / "etc" / name)

    def run(self, command, timeout=300):
        """What a shell command in the root prints; it sees /proc and a /dev/shm of its own."""
        done = subprocess.run(
            ["unshare", "--mount", "sh", "-c", MOUNTS, str(self.path), command],
            env={**ENVIRONMENT, **{k: v for k, v in os.environ.items() if "proxy" in k.lower()}},
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        if done.returncode:
            said = done.stdout[-1500:] + done.stderr[-1500:]
            raise CommandError(f"{command}: exit code {done.returncode}: {said}")
        return done.stdout

    def install(self, *names):
        """apt-get install, of packages in /srv/packages by their file names too."""
        for package in names:
            if package.endswith(".deb"):
                assert (self.path / "srv/packages" / package).exists(), package
        wanted = " ".join(f"./{n}" if n.endswith(".deb") else n for n in names)
        self.run(
            f"cd /srv/packages && apt-get -q install -y --no-install-recommends {wanted}",
            timeout=600,
        )

    def installed(self):
        """Name -> version of the installed packages."""
        listed = self.run("dpkg-query -W -f '${Package} ${Version} ${db:Status-Status}\\n'")
        rows = [line.split() for line in listed.splitlines()]
        return {name: version for name, version, state in rows if state == "installed"}
