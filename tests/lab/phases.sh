# The phases of the service story: start, reload, lease, watchdog, stop, a stuck driver, a state directory that hangs.

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
until_ 60 sees; fact back $?
fact back-child "$([ "$(pgrep -f nvml-worker)" != "$child" ] && echo other)"
journal stuck
systemctl stop gpuprod
fact end "$(show ActiveState) $(show Result)"

# The disk under the state directory stops answering for a minute: a file system on a device that is suspended.
phase store
books
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
