#!/bin/sh
# Process 1 of the guest that vm.sh starts: mounts the host's files, makes an RDMA device, runs the
# command and hands back its exit code. Here is nothing but busybox.
/bin/busybox --install -s /bin
export PATH=/bin
say() { echo "rdma-vm: $*"; }

mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
for module in $(cat /modules.order); do
  insmod "/modules/$module" 2>/insmod.err || say "insmod $module: $(cat /insmod.err)"
done

plan9=trans=virtio,version=9p2000.L,msize=524288
mount -t 9p -o $plan9,cache=mmap run /run || { say "no 9p"; reboot -f; }
. /run/guest.conf
mount -t 9p -o $plan9,cache=loose,ro host /host
mount -t tmpfs -o size=75% up /up
mkdir /up/upper /up/work
root=/root
mount -t overlay -o lowerdir=/host,upperdir=/up/upper,workdir=/up/work over $root ||
  say "no overlay"

for name in proc sys dev tmp run; do mkdir -p $root/$name; done
mount -t proc proc $root/proc
mount -t sysfs sys $root/sys
mount -t devtmpfs dev $root/dev
mkdir -p $root/dev/shm $root/dev/pts $root/dev/infiniband
mount -t tmpfs shm $root/dev/shm
mount -t devpts -o ptmxmode=666 pts $root/dev/pts
ln -sf /proc/self/fd $root/dev/fd
ln -sf fd/0 $root/dev/stdin
ln -sf fd/1 $root/dev/stdout
ln -sf fd/2 $root/dev/stderr
mount -t tmpfs run $root/run
mkdir -p $root/run/rdma-vm
mount -o bind /run $root/run/rdma-vm
number=0
for folder in $writable; do
  mkdir -p "$root$folder"
  mount -t 9p -o $plan9,cache=mmap rw$number "$root$folder"
  number=$((number + 1))
done

ip link set lo up
link=eth0
if [ ! -e /sys/class/net/eth0 ]; then
  link=dummy0
  [ -e /sys/class/net/dummy0 ] || ip link add dummy0 type dummy
fi
# Packets of 9000 bytes: the RDMA device then has its largest MTU, 4096.
ip link set $link mtu 9000
ip addr add "$ip/24" dev $link
ip link set $link up
chroot $root rdma link add rxe0 type rxe netdev $link || say "no RDMA device"
ulimit -l unlimited

for port in /dev/vport*; do
  case $(cat "/sys/class/virtio-ports/${port#/dev/}/name") in
    out) out=$port ;;
    err) err=$port ;;
  esac
done
: >/run/started
chroot $root /bin/bash /run/rdma-vm/command.sh </dev/null >"$out" 2>"$err"
echo $? >/run/exit_code.new
mv /run/exit_code.new /run/exit_code
sync
reboot -f
