# The agent is killed (kill -9) at random moments: before, while and after its state directory's disk is suspended for a
# minute. Outside, a real Prometheus scrapes the port 9750 every second (scraper.py). killed.py judges.
# In /out: kills.csv (uptime, when, pid, seconds that it had lived), killed-during.csv, store.db, journal-killed

phase killed
mountpoint -q /var/lib/gpuprod || books
fact killed-books $?
rm -rf /var/lib/gpuprod/*
port=9750
good "http: {listen: '0.0.0.0:$port'}"
RANDOM=$(od -An -N2 -tu2 /dev/urandom)
moment() { printf '%d.%03d\n' $((RANDOM % $1)) $((RANDOM % 1000)); } # at most so many seconds
shoot() { # WHEN
  local pid began
  pid=$(show MainPID)
  began=$(show ExecMainStartTimestampMonotonic)
  [ "$pid" -gt 0 ] && kill -9 "$pid" || return
  echo "$(now),$1,$pid,$(echo "$(now) $began" | awk '{print $1 - $2 / 1e6}')" >> $out/kills.csv
}
other() { [ "$(show MainPID)" != 0 ] && [ "$(show MainPID)" != "$1" ] && sees; }
killed() { # WHEN: at a random moment of its life, and waited for until another serves
  local pid
  sleep "$(moment 9)"
  pid=$(show MainPID)
  shoot "$1"
  until_ 60 other "$pid"; fact "killed-$1" $?
}
commits() { get /metrics | sed -n 's/^gpuprod_self_store_commits_total //p'; }
differs() { [ "$(commits)" != "$1" ]; }
a_commit() { until_ 20 differs "$(commits)"; }

systemctl start gpuprod
until_ 60 sees; fact killed-start $?
killed before
killed before

# Twice while the disk hangs: one that does not wait for it yet (right after a commit: the next is due in 5 s), and its
# successor, once it does.
a_commit
dmsetup suspend --noflush --nolockfs books
end=$(($(cut -d. -f1 /proc/uptime) + 60))
pid=$(show MainPID)
shoot during
until_ 25 other "$pid"; fact killed-during-again $?
waits() { grep -q '^State:.*D' /proc/"$(show MainPID)"/task/*/status; }
until_ 15 waits; fact killed-waits $?
sleep "$(moment 3)"
get /metrics > $out/killed-during.prom
pid=$(show MainPID)
shoot during
while [ "$(cut -d. -f1 /proc/uptime)" -lt $end ]; do
  page=$(sees && echo page)
  echo "$(now),$(show ActiveState),$(show SubState),$(show MainPID),$(show NRestarts),${page:-silent},$(ps -o stat= -p "$pid")" >> $out/killed-during.csv
  sleep 2
done
fact killed-resumed "$(now)"
dmsetup resume books
until_ 60 other "$pid"; fact killed-after-resume $?
fact killed-left "$([ -e /proc/"$pid" ] && echo there || echo gone)"

killed after

# The last one dies when its disk is full: it shows its last commit and can make no other, so that what Prometheus holds
# is what lies on the disk.
until_ 60 sh -c "busybox wget -q -O - http://127.0.0.1:$port/metrics | grep -q '^gpuprod_self_store_commits_total [2-9]'"
fact killed-commits $?
dd if=/dev/zero of=/var/lib/gpuprod/filler bs=64k 2> /dev/null
dd if=/dev/zero of=/var/lib/gpuprod/filler-2 bs=512 2> /dev/null
full() { get /metrics | grep -q '^gpuprod_self_store_errors_total{reason="full"} '; }
until_ 60 full; fact killed-full $?
sleep 5
get /metrics > $out/killed-last.prom
shoot last
systemctl stop gpuprod
rm /var/lib/gpuprod/filler*
cp /var/lib/gpuprod/store.db* $out/
journal killed
