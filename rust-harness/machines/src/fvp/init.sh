# The guest's first process, run by bash: the root is the host's and cannot be
# written to, the shared directory is at /mnt.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8
mount -t proc proc /proc
mount -t sysfs sysfs /sys
[ -e /dev/null ] || mount -t devtmpfs devtmpfs /dev
mkdir -p /dev/shm && mount -t tmpfs tmpfs /dev/shm
[ -e /dev/fd ] || ln -s /proc/self/fd /dev/fd
mount -t tmpfs tmpfs /run
mount -t debugfs debugfs /sys/kernel/debug
mount -t tracefs tracefs /sys/kernel/debug/tracing
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -t tmpfs tmpfs /tmp
mkdir /tmp/shared && mount --bind /mnt /tmp/shared
mount -t tmpfs tmpfs /mnt
mkdir /mnt/vmtest && mount --bind /tmp/shared /mnt/vmtest
share=/mnt/vmtest
setsid --wait bash $share/.brbe-command </dev/null >$share/.brbe-output 2>&1
echo $? >$share/.brbe-status
sync
echo o >/proc/sysrq-trigger
# Power goes off in a moment: without its first process the kernel would panic.
sleep 60
