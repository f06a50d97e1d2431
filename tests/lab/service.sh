# The service story, as the guest plays it (bash, root, a real systemd): the unit is put in place here, phases.sh and
# killed.sh act on it. They only act and write down; service.py and killed.py judge.
# In /out: facts.csv (name, value), doctor-*.json and proc-*.json (inside the unit and outside), journal-*, *.prom
set -u
out=/out
fact() { echo "$1,$2" >> $out/facts.csv; echo "lab:   $1 $2"; }
now() { cut -d' ' -f1 /proc/uptime; }
show() { systemctl show -P "$1" gpuprod; }
port=9749
get() { timeout 5 busybox wget -q -O - "http://127.0.0.1:$port$1"; }
sees() { get /metrics | grep -q gpuprod_gpu_utilization; }
until_() { # SECONDS COMMAND...
  local end=$(($(cut -d. -f1 /proc/uptime) + $1))
  shift
  until "$@"; do
    [ "$(cut -d. -f1 /proc/uptime)" -ge $end ] && return 1
    sleep 0.3
  done
}
phase() { echo "lab: $(now) s: $1"; }
journal() { # NAME: what the unit said since the last time
  journalctl -u gpuprod -o short-monotonic --cursor-file=/run/cursor > $out/journal-"$1"
  journalctl -u gpuprod -p warning -o cat --cursor-file=/run/cursor-warn > $out/warnings-"$1"
}

# A file system of its own under the state directory, on a device that can be suspended.
books() {
  dmsetup create books --noudevsync --table '0 98304 linear /dev/ram0 16384' && dmsetup mknodes books
  mkdir -p /var/lib/gpuprod
  mke2fs -q -F -t ext4 /dev/mapper/books && mount /dev/mapper/books /var/lib/gpuprod
}

phase install
sh /payload/install /payload/gpuprod; fact install $?
install -D -m 644 /payload/libgpuprod_fake_nvml.so /usr/lib/gpuprod/libgpuprod_fake_nvml.so
{ systemd-analyze verify /etc/systemd/system/gpuprod.service && echo clean; } > $out/verify 2>&1
systemd-analyze security --no-pager gpuprod.service | tail -1 > $out/security

# A process of root's on the "GPU", that reads an array; a drive's own file system; a node of the driver's.
mdadm --create /dev/md0 --run --level=1 --raid-devices=2 --assume-clean --size=65536 /dev/nvme0n1 /dev/nvme1n1 > /dev/null 2>&1
modprobe brd rd_nr=1 rd_size=65536
dmsetup create stuck --noudevsync --table '0 16384 linear /dev/ram0 0' && dmsetup mknodes stuck
tail -f /dev/null 9< /dev/md0 &
work=$!
mknod -m 666 /dev/nvidia3 c 195 3
mkdir -p /run/fake
nvml() { # [FAULT]
  local gpu='{"util":84,"power_mw":402000,"temp":61,"mem_used":68719476736,"processes":[{"pid":'$work',"mem_used":67645734912,"sm":84}]}'
  echo '{"gpus":['"$gpu,$gpu"'],"faults":['"${1:-}"']}' > /run/fake/new
  mv /run/fake/new /run/fake/nvml.json
}
nvml
good() { printf 'sampling: {nvml_library: /usr/lib/gpuprod/libgpuprod_fake_nvml.so}\n%s\n' "${1:-}" > /etc/gpuprod/gpuprod.yaml; }
good
# The lab's own: where the fake library looks, the device on which it hangs, and one look from inside the sandbox.
mkdir -p /etc/systemd/system/gpuprod.service.d
cat > /etc/systemd/system/gpuprod.service.d/lab.conf <<'UNIT'
[Service]
Environment=GPUPROD_FAKE_NVML=/run/fake/nvml.json
DeviceAllow=block-device-mapper r
ExecStartPost=-/bin/sh -c '[ -e /run/look ] || exit 0; cd /var/lib/gpuprod; id > id; grep Cap /proc/self/status > caps; \
  gpuprod doctor --json > doctor-inside.json; gpuprod snapshot --only gpu,proc,cgroup --json > proc-inside.json; \
  cat /dev/nvidia3 > nvidia 2>&1; cat /dev/nvme0n1 > nvme 2>&1; touch /etc/x > etc 2>&1'
UNIT
systemctl daemon-reload

[ -e /payload/killed-only ] || . /payload/phases.sh
. /payload/killed.sh
kill $work
