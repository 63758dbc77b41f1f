# Process 1 of a machine, in namespaces of its own. It builds a root filesystem of the host's /usr, the programs of the
# machine and the folders of its disk, and then keeps containerd and the kubelet running, as systemd does.
# `machine.rs` sets the variables, and creates /run/off when the machine is to be switched off. Everything ends with this process: it is process 1 of a PID namespace.
set -eu
export PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin

# Each process that the machine starts stays below this cgroup.
echo 0 >"$CGROUP_PROCS"

cd "$ROOT"
mount -t tmpfs -o mode=755 machine .
cd "$ROOT"
mkdir etc opt var usr run tmp proc sys dev root old
for name in bin sbin lib lib32 lib64 libx32; do
  if [ -L "/$name" ]; then
    cp -P "/$name" .
  elif [ -d "/$name" ]; then
    mkdir "$name"
    mount --bind "/$name" "$name"
  fi
done

mount -t overlay -o "lowerdir=$PACKAGES/usr:/usr" overlay usr
mount -t tmpfs -o mode=755 local usr/local
mkdir usr/local/bin
for program in $PROGRAMS; do
  touch "usr/local/bin/${program##*/}"
  mount --bind "$program" "usr/local/bin/${program##*/}"
done
ln -s /usr/sbin/iptables-nft usr/local/bin/iptables
ln -s /usr/sbin/ip6tables-nft usr/local/bin/ip6tables

# There is no systemd. The loop below starts the kubelet again.
cat >usr/local/bin/systemctl <<'SCRIPT'
#!/bin/sh
if [ "$*" != 'restart kubelet' ]; then
  echo "systemctl $*: this machine knows only 'systemctl restart kubelet'" >&2
  exit 1
fi
pid="$(cat /run/kubelet.pid)"
kill "$pid"
until [ "$(cat /run/kubelet.pid)" != "$pid" ]; do sleep 0.1; done
SCRIPT
chmod 755 usr/local/bin/systemctl

for name in etc opt var; do mount --bind "$DISK/$name" "$name"; done
mount -t tmpfs -o mode=755 run run
mount -t tmpfs -o mode=1777 tmp tmp
mount -t proc proc proc
mount -t sysfs sysfs sys
mount --rbind /sys/fs/cgroup sys/fs/cgroup
mount --rbind /dev dev

# The kubelet sets these for the whole host. Here it writes files that stand for them.
mkdir run/sysctl
for name in $SYSCTLS; do
  cat "proc/sys/$name" >"run/sysctl/${name//\//.}"
  mount --bind "run/sysctl/${name//\//.}" "proc/sys/$name"
done

pivot_root . old
cd /
umount -l /old
rmdir /old
mount --make-rshared /
hostname "$NAME"

# The host creates the other end of eth0.
ip link set lo up
until ip link show eth0 >/dev/null 2>&1; do sleep 0.1; done
ip address add "$ADDRESS/24" dev eth0
ip link set eth0 up
ip route add default via "$GATEWAY"
echo 1 >/proc/sys/net/ipv4/ip_forward
while read -r range via; do
  if [ -n "$range" ]; then ip route add "$range" via "$via"; fi
done <<<"$ROUTES"

# There is no kube-proxy: the Service `kubernetes` leads to this API server.
for chain in PREROUTING OUTPUT; do
  iptables -t nat -A "$chain" -d "$SERVICE" -p tcp --dport 443 -j DNAT --to-destination "$API_SERVER"
done

# A simulated instance metadata service, where there is one.
if [ -n "$METADATA_SERVER" ]; then
  for chain in PREROUTING OUTPUT; do
    iptables -t nat -A "$chain" -d "$METADATA" -p tcp --dport 80 -j DNAT --to-destination "$METADATA_SERVER"
  done
fi

while [ ! -e /run/off ]; do
  containerd || echo "containerd ended with $?"
  sleep 1
done >>/var/log/containerd.log 2>&1 &

# The unit of kubeadm's package starts the kubelet in the same way.
while [ ! -e /run/off ]; do
  if [ -e /var/lib/kubelet/config.yaml ]; then
    KUBELET_KUBEADM_ARGS='' KUBELET_EXTRA_ARGS=''
    # The variables of these files are in the environment of the kubelet, as with EnvironmentFile of systemd.
    set -a
    for file in /var/lib/kubelet/kubeadm-flags.env /etc/default/kubelet; do
      if [ -e "$file" ]; then . "$file"; fi
    done
    set +a
    # shellcheck disable=SC2086 # they are lists of flags
    kubelet --kubeconfig=/etc/kubernetes/kubelet.conf --config=/var/lib/kubelet/config.yaml \
      $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS &
    echo "$!" >/run/kubelet.pid
    wait "$!" || echo "the kubelet ended with $?"
  fi
  sleep 1
done >>/var/log/kubelet.log 2>&1

# The host ends this process when the containers have ended.
exec sleep infinity
