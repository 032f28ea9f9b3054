#!/usr/bin/env bash
# Runs a command on a Debian kernel that has a software RDMA device (rdma_rxe), in an emulated
# machine; no hardware, no /dev/kvm and no module of the running kernel is needed. The guest sees
# this machine's own files (9p, read-only, below a throw-away overlay), the same folder and
# environment; the command's output and exit code come back. README.md says what to mind.
#
# usage: bash tests/rdma/vm.sh prepare | COMMAND [ARGUMENT ...]        in the environment:
#   RDMA_VM_CACHE    folder for kernel and start-up files            (default build/rdma-vm)
#   RDMA_VM_RW       folders, split by colons, that the guest may really write to      (none)
#   RDMA_VM_NODES    1, or 2: two guests on one virtual wire, both run the command        (1)
#   RDMA_VM_CPUS, RDMA_VM_MIB, RDMA_VM_TIMEOUT_S                           (4, 1024, 600)
#   RDMA_VM_BOOT_S   seconds until the command has to have started                       (60)
#   RDMA_VM_VERBOSE  1: shows the guest's kernel log at the end
# In the guest: RDMA_VM_NODE=0|1, RDMA_VM_IP, RDMA_VM_PEER_IP (its own with one node).
# Exit codes of its own: 123 a guest did not come up, 124 out of time, 125 no guest could be
# started, or it died.
set -euo pipefail

root=$(cd "$(dirname "$0")/../.." && pwd)
cache=${RDMA_VM_CACHE:-$root/build/rdma-vm}
nodes=${RDMA_VM_NODES:-1} cpus=${RDMA_VM_CPUS:-4} mib=${RDMA_VM_MIB:-1024}
limit=${RDMA_VM_TIMEOUT_S:-600} boot_limit=${RDMA_VM_BOOT_S:-60} writable=${RDMA_VM_RW:-}
# In the order in which they are loaded; what they depend on is found.
modules="virtio_pci virtio_console virtio_net 9pnet_virtio 9p overlay dummy sch_netem crc32_generic
  crc32c_generic ib_uverbs rdma_rxe"
export PATH=$PATH:/usr/sbin:/sbin

die() { echo "rdma-vm: $*" >&2; exit 125; }
[ $# -gt 0 ] || die "usage: bash tests/rdma/vm.sh prepare | COMMAND [ARGUMENT ...]"

# --- Kernel and start-up files, made once per cache folder under a lock.

# The kernel's package is unpacked, never installed: the boot image and the modules that may matter.
fetch_kernel() {
  local package version folder=$cache/unpacked.new
  package=$(apt-cache depends linux-image-amd64 |
    sed -n 's/^ *Depends: *\(linux-image-[0-9].*\)/\1/p' | head -n 1)
  if [ -z "$package" ]; then
    timeout 300 apt-get -q update >/dev/null || true
    package=$(apt-cache depends linux-image-amd64 |
      sed -n 's/^ *Depends: *\(linux-image-[0-9].*\)/\1/p' | head -n 1)
  fi
  [ -n "$package" ] || die "no package linux-image-amd64 is known here"
  version=${package#linux-image-}
  rm -rf "$folder"
  mkdir -p "$folder"
  download "$folder" "$package" || { timeout 300 apt-get -q update >/dev/null &&
    download "$folder" "$package"; } || die "$package cannot be fetched"
  dpkg-deb --fsys-tarfile "$folder"/*.deb | tar -x -C "$folder" --wildcards \
    "./boot/vmlinuz-*" "./lib/modules/$version/modules.*" \
    "./lib/modules/$version/kernel/"{arch,crypto,lib,net,fs}"/*" \
    "./lib/modules/$version/kernel/drivers/"{virtio,char,infiniband/core,infiniband/sw}"/*" \
    "./lib/modules/$version/kernel/drivers/net/"{virtio_net,net_failover,dummy}".ko*"
  depmod -b "$folder" "$version" 2>/dev/null
  rm -f "$folder"/*.deb
  rm -rf "$cache/unpacked"
  mv "$folder" "$cache/unpacked"
  echo "$version" >"$cache/version"
  decompress_kernel "$cache"/unpacked/boot/vmlinuz-* "$cache/kernel.new"
  rm -f "$cache"/initrd.*
  mv "$cache/kernel.new" "$cache/kernel"
}

download() {
  (cd "$1" && timeout 300 apt-get -q download -o APT::Sandbox::User=root "$2" >/dev/null)
}

# The ELF file inside boots without decompression, which takes 5 s under emulation.
decompress_kernel() {
  local offset
  offset=$(LC_ALL=C grep -aboP -m1 '\xFD7zXZ\x00' "$1" | head -n 1 | cut -d: -f1) || offset=
  [ -z "$offset" ] || tail -c +$((offset + 1)) "$1" | xz -dc >"$2" 2>/dev/null || true
  [ "$(head -c 4 "$2" 2>/dev/null)" = $'\x7fELF' ] || cp "$1" "$2"
}

# Its name carries what it is made of, so that an edit makes another one.
make_initrd() {
  local version folder=$cache/initrd.tree module file
  version=$(cat "$cache/version")
  initrd=$cache/initrd.$(cat "$0" "$root/tests/rdma/guest_init.sh" | sha256sum | cut -c 1-16)
  [ ! -e "$initrd" ] || return 0
  rm -rf "$folder"
  mkdir -p "$folder"/{bin,modules,proc,sys,dev,run,host,up,root}
  cp "$(command -v busybox)" "$folder/bin/busybox"
  ln -s busybox "$folder/bin/sh"
  for module in $modules; do
    modprobe -d "$cache/unpacked" -S "$version" --show-depends "$module" 2>/dev/null |
      sed -n 's/^insmod \([^ ]*\).*/\1/p'
  done | awk '!seen[$0]++' >"$cache/modules"
  while read -r file; do
    case $file in
      *.xz) xz -dc "$file" >"$folder/modules/$(basename "${file%.xz}")" ;;
      *) cp "$file" "$folder/modules/" ;;
    esac
    basename "${file%.xz}" >>"$folder/modules.order"
  done <"$cache/modules"
  cp "$root/tests/rdma/guest_init.sh" "$folder/init"
  chmod +x "$folder/init"
  (cd "$folder" && find . | cpio -o -H newc --quiet) >"$initrd.new"
  mv "$initrd.new" "$initrd"
  rm -rf "$folder"
}

prepare() {
  local name
  for name in qemu-system-x86_64 busybox cpio modprobe rdma xz; do
    command -v "$name" >/dev/null || die "$name is missing: bash tests/packages.sh rdma"
  done
  [ -e "$cache/kernel" ] || fetch_kernel
  make_initrd
}

# --- One guest.

write_command() { # FOLDER NODE IP PEER_IP COMMAND ...
  local folder=$1 node=$2 ip=$3 peer=$4
  shift 4
  {
    export -p
    echo "export RDMA_VM=1 RDMA_VM_NODE=$node RDMA_VM_IP=$ip RDMA_VM_PEER_IP=$peer"
    printf 'cd %q || exit 125\nexec' "$PWD"
    printf ' %q' "$@"
    echo
  } >"$folder/command.sh"
}

share() { # NAME FOLDER OPTIONS: arguments that show a folder to the guest
  machine+=(-fsdev "local,id=$1,path=$2,security_model=none,multidevs=remap$3"
    -device "virtio-9p-pci,fsdev=$1,mount_tag=$1")
}

describe_machine() { # NODE FOLDER
  local folder number=0
  machine=(-nodefaults -no-user-config -display none -no-reboot -machine q35,usb=off
    -accel tcg,thread=multi -cpu "max,la57=off" -smp "$cpus" -m "$mib"
    -kernel "$cache/kernel" -initrd "$initrd"
    -append "console=ttyS0 quiet loglevel=4 panic=-1 reboot=t mitigations=off nokaslr \
random.trust_cpu=on tsc=reliable no_timer_check net.ifnames=0 rdinit=/init"
    -serial "file:$2/console" -device virtio-serial-pci
    -chardev "file,id=out,path=$2/out,append=on" -device "virtserialport,chardev=out,name=out"
    -chardev "file,id=err,path=$2/err,append=on" -device "virtserialport,chardev=err,name=err")
  share host / ,readonly=on
  share run "$2" ""
  for folder in ${writable//:/ }; do
    share "rw$number" "$folder" ""
    number=$((number + 1))
  done
  [ "$nodes" = 2 ] || return 0
  machine+=(-device "virtio-net-pci,netdev=wire,mac=52:54:00:77:00:0$1,romfile=,host_mtu=9000"
    -netdev "stream,id=wire,server=$([ "$1" = 0 ] && echo on || echo off),addr.type=unix,\
addr.path=$work/wire")
}

# Now and then a guest does not come up, for reasons not known. No command has run then, so who sees
# exit code 123 may try again.
end_unless_started() { # FOLDER PROCESS
  for _ in $(seq "$boot_limit"); do
    sleep 1
    [ ! -e "$1/started" ] || return 0
    kill -0 "$2" 2>/dev/null || return 0
  done
  : >"$1/never_started"
  kill "$2" 2>/dev/null
}

run_node() { # NODE COMMAND ...
  local node=$1 folder=$work/$1 ip=10.77.0.$((1 + $1)) peer qemu watcher code=0
  shift
  trap - EXIT
  peer=$ip
  [ "$nodes" = 1 ] || peer=10.77.0.$((2 - node))
  mkdir "$folder"
  mkfifo "$folder/out" "$folder/err"
  printf 'ip=%s writable="%s"\n' "$ip" "${writable//:/ }" >"$folder/guest.conf"
  write_command "$folder" "$node" "$ip" "$peer" "$@"
  describe_machine "$node" "$folder"
  # Node 0 makes the socket that is the wire.
  for _ in $(seq 100); do [ "$node" = 0 ] || [ -S "$work/wire" ] || sleep 0.1; done
  cat "$folder/out" &
  cat "$folder/err" >&2 &
  timeout -k 5 "$limit" qemu-system-x86_64 "${machine[@]}" </dev/null >"$folder/qemu.log" 2>&1 &
  qemu=$!
  trap 'kill $qemu 2>/dev/null' TERM INT HUP
  end_unless_started "$folder" $qemu &
  watcher=$!
  wait $qemu || code=$?
  kill $watcher 2>/dev/null || true
  # Lets the two readers end also when the emulator never opened the pipes.
  : <>"$folder/out"
  : <>"$folder/err"
  wait
  [ -z "${RDMA_VM_VERBOSE:-}" ] || cat "$folder/console" "$folder/qemu.log" >&2
  [ ! -e "$folder/exit_code" ] || return "$(cat "$folder/exit_code")"
  tail -n 40 "$folder/console" "$folder/qemu.log" >&2 || true
  if [ -e "$folder/never_started" ]; then
    echo "rdma-vm: node $node did not come up within $boot_limit s" >&2
    return 123
  fi
  if [ $code = 124 ] || [ $code = 137 ]; then
    echo "rdma-vm: node $node was out of time after $limit s" >&2
    return 124
  fi
  echo "rdma-vm: node $node ended without a result (emulator: $code)" >&2
  return 125
}

mkdir -p "$cache"
cache=$(cd "$cache" && pwd)
exec 9>"$cache/lock"
flock 9
prepare
flock -u 9
exec 9>&-
[ "$*" != prepare ] || exit 0

# A short path: the wire is a unix socket in there.
work=$(mktemp -d "${TMPDIR:-/tmp}/rdma-vm.XXXXXX")
trap 'rm -rf "$work"' EXIT
running=()
for node in $(seq 0 $((nodes - 1))); do
  (run_node "$node" "$@") &
  running+=($!)
done
trap 'kill "${running[@]}" 2>/dev/null || true' TERM INT HUP
result=0
for process in "${running[@]}"; do
  code=0
  wait "$process" || code=$?
  [ $result != 0 ] || result=$code
done
exit $result
