# The service story, as the guest plays it (bash, root, a real systemd). It only acts and writes down; service.py judges.
# In /out: facts.csv (name, value), doctor-*.json and proc-*.json (inside the unit and outside), journal-*, *.prom
set -u
out=/out
fact() { echo "$1,$2" >> $out/facts.csv; echo "lab:   $1 $2"; }
now() { cut -d' ' -f1 /proc/uptime; }
show() { systemctl show -P "$1" gpuprod; }
get() { timeout 5 busybox wget -q -O - "http://127.0.0.1:9749$1"; }
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

phase start
touch /run/look
GPUPROD_FAKE_NVML=/run/fake/nvml.json gpuprod doctor --json > $out/doctor-outside.json
GPUPROD_FAKE_NVML=/run/fake/nvml.json gpuprod snapshot --only gpu,proc,cgroup --json > $out/proc-outside.json
rm -rf /run/gpuprod
began=$(now)
systemctl start gpuprod; fact start "$?"
fact start-took "$(echo "$began $(now)" | awk '{print $2 - $1}')"
rm /run/look
cp /var/lib/gpuprod/*.json /var/lib/gpuprod/{id,caps,nvidia,nvme,etc} $out/
fact active "$(show ActiveState)"
fact user "$(ps -o user= -p "$(show MainPID)")"
until_ 20 sh -c "busybox wget -q -O - http://127.0.0.1:9749/metrics | grep -q gpuprod_gpu_utilization"; fact sees-gpus $?
sleep 3
get /metrics > $out/start.prom
fact status "$(show StatusText | tr , ';')"
get /readyz > $out/readyz
ls -ln /run/gpuprod /var/lib/gpuprod > $out/files
fact asked "$(gpuprod check --json > $out/check.json; echo $?)"
su -s /bin/sh -c 'gpuprod check --json' nobody > $out/check-nobody.json 2>&1
usermod -aG gpuprod games 2> /dev/null || sed -i 's/^\(gpuprod:.*\)$/\1games/' /etc/group
su -s /bin/sh -c 'gpuprod check --json' games > $out/check-member.json 2> /dev/null
journal start

phase reload
pid=$(show MainPID)
good 'rules: {modes: {raid_rebuild_impact: ticket}}'
systemctl reload gpuprod; fact reload $?
until_ 20 sh -c "busybox wget -q -O - http://127.0.0.1:9749/metrics | grep -q 'config_reloads_total 1'"; fact reloaded $?
journal reload
good 'rules: {modes: {raid_rebuild: ticket}}'
systemctl reload gpuprod; fact reload-bad $?
until_ 20 sh -c "busybox wget -q -O - http://127.0.0.1:9749/metrics | grep -q 'config_failures_total 1'"; fact refused $?
sleep 1
fact status-refused "$(show StatusText | tr , ';')"
fact still "$(show ActiveState) $([ "$(show MainPID)" = "$pid" ] && echo same)"
good
systemctl reload gpuprod
journal reload-bad

phase lease
gpuprod release-gpu --for 1m > $out/release; fact release $?
fact released-maps "$(cat /proc/[0-9]*/maps 2> /dev/null | grep -c fake_nvml)"
gpuprod resume-gpu > $out/resume; fact resume $?

phase watchdog
fact watchdog-usec "$(show WatchdogUSec)"
before=$(show NRestarts)
kill -STOP "$pid"; began=$(cut -d. -f1 /proc/uptime)
changed() { [ "$(show NRestarts)" -gt "$before" ] && [ "$(show ActiveState)" = active ] && [ "$(show MainPID)" != "$pid" ]; }
until_ 60 changed; fact watchdog-restarted $?
fact watchdog-after $(($(cut -d. -f1 /proc/uptime) - began))
journal watchdog

phase stop
until_ 20 sh -c "busybox wget -q -O - http://127.0.0.1:9749/metrics | grep -q gpuprod_gpu_utilization"
began=$(now)
systemctl stop gpuprod; fact stop $?
fact stop-took "$(echo "$began $(now)" | awk '{print $2 - $1}')"
fact stopped "$(show ActiveState) $(show Result)"
fact left "$(pgrep -c -x -f '.*nvml-worker.*')"
journal stop

phase stuck
systemctl start gpuprod
until_ 20 sh -c "busybox wget -q -O - http://127.0.0.1:9749/metrics | grep -q gpuprod_gpu_utilization"
child=$(pgrep -f nvml-worker)
dmsetup suspend --noflush --nolockfs stuck
nvml '{"hang":{"call":"nvmlDeviceGetPowerUsage","via":"/dev/mapper/stuck"}}'
blocked() { grep -q '^State:.*D' /proc/"$child"/task/*/status; }
until_ 20 blocked; fact blocked $?
sleep 5
get /metrics > $out/stuck.prom
gpuprod release-gpu --for 10m > $out/release-stuck 2>&1; fact release-stuck $?
began=$(now)
systemctl stop gpuprod; fact stuck-stop $?
fact stuck-stop-took "$(echo "$began $(now)" | awk '{print $2 - $1}')"
fact stuck-stopped "$(show ActiveState) $(show Result)"
fact stuck-child "$(pgrep -f nvml-worker | tr '\n' ' ')of $child"
began=$(now)
systemctl start gpuprod; fact stuck-start $?
fact stuck-start-took "$(echo "$began $(now)" | awk '{print $2 - $1}')"
sleep 6
get /metrics > $out/stuck-again.prom
fact stuck-children "$(pgrep -fc nvml-worker)"
nvml
dmsetup resume stuck
sees() { get /metrics | grep -q gpuprod_gpu_utilization; }
until_ 60 sees; fact back $?
fact back-child "$([ "$(pgrep -f nvml-worker)" != "$child" ] && echo other)"
journal stuck
systemctl stop gpuprod
fact end "$(show ActiveState) $(show Result)"

# The disk under the state directory stops answering for a minute: a file system on a device that is suspended.
phase store
dmsetup create books --noudevsync --table '0 98304 linear /dev/ram0 16384' && dmsetup mknodes books
mke2fs -q -F -t ext4 /dev/mapper/books && mount /dev/mapper/books /var/lib/gpuprod
fact books $?
systemctl start gpuprod
until_ 60 sees; fact books-start $?
sleep 12
pid=$(show MainPID)
before=$(show NRestarts)
get /metrics > $out/books-before.prom; fact books-before "$(now)"
dmsetup suspend --noflush --nolockfs books
end=$(($(cut -d. -f1 /proc/uptime) + 60))
while [ "$(cut -d. -f1 /proc/uptime)" -lt $end ]; do
  page=$(get /metrics)
  observed=$(echo "$page" | sed -n 's/^gpuprod_gpu_observed_seconds_total{.*} //p' | head -1)
  lag=$(echo "$page" | sed -n 's/^gpuprod_self_store_lag_seconds //p')
  tick=$(echo "$page" | sed -n 's/^gpuprod_self_tick_timestamp_seconds //p')
  # busybox fails on a status other than 200: ticks that stand still.
  health=$(get /healthz > /dev/null && echo ticks)
  echo "$(now),${observed:-none},${lag:-none},${tick:-none},${health:-still}" >> $out/books-during.csv
  sleep 1.5
done
fact books-status "$(show StatusText | tr , ';')"
# Who waits for what, for people: the kernel's view of each thread.
for task in /proc/"$pid"/task/*; do echo "$(cat "$task/comm") $(grep ^State "$task/status") $(tr '\n' ' ' < "$task/stack")"; done > $out/books-threads
dmsetup resume books
sleep 12
get /metrics > $out/books-after.prom; fact books-after "$(now)"
fact books-status-after "$(show StatusText | tr , ';')"
fact books-process "$(($(show NRestarts) - before)) restarts; $([ "$(show MainPID)" = "$pid" ] && echo same)"
journal store
began=$(now)
systemctl stop gpuprod; fact books-stop $?
fact books-stop-took "$(echo "$began $(now)" | awk '{print $2 - $1}')"
ls /var/lib/gpuprod > $out/books-files
kill $work
