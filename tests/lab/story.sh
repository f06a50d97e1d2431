# The lab story, as the guest plays it (busybox sh, root). It only acts and writes down; judge.py judges.
#
#   healthy    a pump reads a RAID5 and its page shows tokens; eight fake GPUs read 84 % and name it as their process
#   other      control arm: an array that the pump does not read rebuilds
#   check      control arm: a scrub of the pump's array that costs it next to nothing
#   throttled  control arm: the pump's cgroup is slowed by io.max; throttled-sync: 45 s later, while it still is, a scrub
#              of its array runs as fast as the rebuild will and its members answer late; rest: both are over, it recovers
#   rebuild    a spare is added and a member fails; the rebuild takes what it needs; after: it has ended
#   hung       the driver hangs in state D; the agent is ended, started again, and the driver comes back
#
# In /out:  phases.csv (phase, first and last second after boot)   pump.csv (the pump's own log: the truth of its rate)
#           md.csv, disks.csv (the kernel's own words each second)  frames/N.json, frames/N.prom, frames.csv (what the agent says)
#           (the agent's config is alerts.py's: its alerts go to the host)
#           hung.csv (what happened when)                           agent.log, check-PHASE.json
set -u
. /payload/settings 2>/dev/null
# Per member, in KiB. With the speed, they make the rebuild last about two and a half minutes.
SIZE=${SIZE:-1884000}
REBUILD_SPEED=${REBUILD_SPEED:-12000}
CHECK_SPEED=${CHECK_SPEED:-1000}
PUMP_IOPS=${PUMP_IOPS:-200}      # of 300 that three drives of 100 can give
PUMP_IOPS_SLOW=${PUMP_IOPS_SLOW:-80}
PAGE=http://127.0.0.1:9749
NVML=/run/nvml.json
mkdir -p /out/frames

now() { read -r up rest < /proc/uptime; echo "$up"; }
phase=''
phase() { # NAME: ends the one before
  at=$(now)
  [ -n "$phase" ] && echo "$phase,$phase_began,$at" >> /out/phases.csv
  phase=$1; phase_began=$at
  echo "lab: $at s: $1"
}
keep() { wait "${saver:-}" 2>/dev/null; save & saver=$!; } # what is there already, in case the boot is cut off
event() { echo "$1,$2" >> /out/hung.csv; echo "lab:   $1 $2"; }

# ---- the node ---------------------------------------------------------------------------------------------------

disk() { # SERIAL: the kernel's name of a drive
  for controller in /sys/class/nvme/nvme*; do
    read -r serial < "$controller/serial"
    [ "$serial" = "$1" ] && echo "/dev/${controller##*/}n1"
  done
}

gpus() { # PID [FAULT]: eight boards, busy by the looks of them, with one process
  gpu='{"util":84,"util_mem":41,"power_mw":402000,"temp":61,"clock_sm":1755,"clock_reasons":0,"mem_used":68719476736,"processes":[{"pid":'$1',"mem_used":67645734912,"sm":84}]}'
  echo '{"gpus":['"$gpu,$gpu,$gpu,$gpu,$gpu,$gpu,$gpu,$gpu"'],"faults":['"${2:-}"']}' > $NVML.new
  mv $NVML.new $NVML
}

start_agent() {
  GPUPROD_FAKE_NVML=$NVML gpuprod agent --config /payload/agent.yaml --nvml-library /payload/libgpuprod_fake_nvml.so \
    --engine http://127.0.0.1:8000/metrics >> /out/agent.log 2>&1 &
  agent=$!
}

# ---- what is written down beside ----------------------------------------------------------------------------------

watch_kernel() { # Built-ins only: each program that is started costs the emulated CPUs 50 ms.
  while :; do
    at=$(now)
    for array in md0 md1; do
      [ -e /sys/block/$array/md/sync_action ] || continue
      action=; speed=; done=
      read -r action < /sys/block/$array/md/sync_action
      read -r speed < /sys/block/$array/md/sync_speed
      fine=; inside=
      while read -r line; do
        case $line in
          $array\ *) inside=1 ;;
          *' : '*) inside= ;;
          *\(*/*\)*finish*) [ -n "$inside" ] && { fine=${line#*\(}; fine=${fine%%\)*}; } ;;
        esac
      done < /proc/mdstat
      echo "$at,$array,$action,$speed,$fine" >> /out/md.csv
    done
    while read -r _ _ name reads _ _ read_ms writes _ _ write_ms _; do
      case $name in nvme*n1 | md0) echo "$at,$name,$reads,$read_ms,$writes,$write_ms" >> /out/disks.csv ;; esac
    done < /proc/diskstats
    sleep 1
  done
}

watch_agent() {
  n=0
  while :; do
    n=$((n + 1)); began=$(now); page=0; frame=0
    timeout 3 wget -q -O /out/frames/$n.prom $PAGE/metrics || page=1
    answered=$(now)
    timeout 3 wget -q -O /out/frames/$n.json $PAGE/api/v1/frame || frame=1
    echo "$n,$began,$answered,$page,$frame" >> /out/frames.csv
    echo $n > /run/last-frame
    sleep 1.5
  done
}

last_frame() { read -r n < /run/last-frame; echo "/out/frames/$n.json"; }
learnt() { grep -q '"rule":"busy_but_starved"[^}]*"status":"evaluated"' "$(last_frame)"; }
blamed() { grep -qE '"severity":"(warn|critical)"' "$(last_frame)"; }
wait_until() { # LIMIT COMMAND...: looks every two seconds
  limit=$1; shift; waited=0
  until "$@"; do
    sleep 2; waited=$((waited + 2))
    [ $waited -ge "$limit" ] && return 1
  done
}
calm() { ! blamed; }
verdict() { gpuprod check --json > /out/check-$1.json 2> /out/check-$1.err; echo "check-$1,$?" >> /out/codes.csv; }

# ---- the story ----------------------------------------------------------------------------------------------------

a=$(disk LAB0); b=$(disk LAB1); c=$(disk LAB2); spare=$(disk LAB3)
echo "member,$a,$b,$c" > /out/disks.names; echo "spare,$spare" >> /out/disks.names
mdadm --create /dev/md0 --run --level=5 --raid-devices=3 --size="$SIZE" --assume-clean "$a" "$b" "$c" 2>&1 | tail -1
modprobe brd rd_nr=3 rd_size=131072
dmsetup create stuck --noudevsync --table '0 16384 linear /dev/ram2 0'
dmsetup mknodes stuck # nobody else makes the node: there is no udev

echo +io > /sys/fs/cgroup/cgroup.subtree_control
mkdir /sys/fs/cgroup/job
(echo 0 > /sys/fs/cgroup/job/cgroup.procs; exec pump --read /dev/md0 --limit-iops "$PUMP_IOPS" --log /out/pump.csv) &
pump=$!
gpus $pump
echo 0 > /run/last-frame
phase healthy
start_agent
watch_kernel & kernel_watcher=$!
watch_agent & agent_watcher=$!
if [ "${RECORD:-0}" = 1 ]; then
  printf 'state_dir: /run/record\n' > /run/record.yaml
  GPUPROD_FAKE_NVML=$NVML gpuprod record /out/story.ticks --config /run/record.yaml --for 20m \
    --nvml-library /payload/libgpuprod_fake_nvml.so --engine http://127.0.0.1:8000/metrics 2>> /out/agent.log & recorder=$!
fi
sleep 150
wait_until 180 learnt && sleep 10
verdict healthy

phase other
mdadm --create /dev/md1 --run --level=1 --raid-devices=2 --assume-clean /dev/ram0 missing > /dev/null 2>&1
echo 2000 > /sys/block/md1/md/sync_speed_max
mdadm /dev/md1 --add /dev/ram1 > /dev/null 2>&1
sleep 45
phase other-ends
mdadm --stop /dev/md1 > /dev/null 2>&1
sleep 3

phase check
for limit in min max; do echo "$CHECK_SPEED" > /sys/block/md0/md/sync_speed_$limit; done
echo check > /sys/block/md0/md/sync_action
sleep 45
phase check-ends
echo idle > /sys/block/md0/md/sync_action
sleep 3

phase throttled
read -r md0 < /sys/block/md0/dev
echo "$md0 riops=$PUMP_IOPS_SLOW" > /sys/fs/cgroup/job/io.max
sleep 45
phase throttled-sync
for limit in max min; do echo "$REBUILD_SPEED" > /sys/block/md0/md/sync_speed_$limit; done
echo check > /sys/block/md0/md/sync_action
sleep 45
echo idle > /sys/block/md0/md/sync_action
wait_until 10 grep -q idle /sys/block/md0/md/sync_action
phase rest
echo "$md0 riops=max" > /sys/fs/cgroup/job/io.max
sleep 20
wait_until 80 calm
sleep 5

phase rebuild
keep
# The operator has raised the floor: md gives way to nobody below it.
for limit in max min; do echo "$REBUILD_SPEED" > /sys/block/md0/md/sync_speed_$limit; done
mdadm /dev/md0 --add "$spare" > /dev/null 2>&1
mdadm /dev/md0 --fail "$b" > /dev/null 2>&1
sleep 90
verdict rebuild
wait_until 150 grep -q idle /sys/block/md0/md/sync_action
phase after
sleep 60
wait_until 50 calm
now > /run/calm-at
sleep 5
verdict after
if [ -n "${recorder:-}" ]; then kill -INT "$recorder"; wait "$recorder"; fi

# ---- the hung driver ------------------------------------------------------------------------------------------------

workers() { # pids of living NVML children: what runs the agent's program and is not the agent
  for process in /proc/[0-9]*; do
    pid=${process##*/}
    [ "$process/exe" -ef /payload/gpuprod ] && [ "$pid" != "$agent" ] && echo "$pid"
  done
}
letters() { for thread in /proc/$1/task/*/stat; do read -r _ _ letter _ < "$thread" && printf %s "$letter"; done 2>/dev/null; }
blocked() { letters "$1" | grep -q D; }
mourned() { ! kill -0 "$1" 2>/dev/null || grep -q '^[0-9]* ([^)]*) Z' /proc/"$1"/stat 2>/dev/null; }
poll() { # LIMIT COMMAND...: looks five times a second, by the clock
  limit=$1; shift; until_=$(($(cut -d. -f1 /proc/uptime) + limit))
  until "$@"; do
    [ "$(cut -d. -f1 /proc/uptime)" -ge $until_ ] && return 1
    sleep 0.2
  done
}
hung_is_told() { timeout 2 wget -q -O - $PAGE/metrics | grep -q '^gpuprod_self_probe_hung.*nvmlDeviceGetPowerUsage'; }
answers() { timeout 2 wget -q -O /dev/null $PAGE/metrics; }

phase hung
keep
child=$(workers)
event child "$child"
dmsetup suspend --noflush --nolockfs stuck
gpus $pump '{"hang":{"call":"nvmlDeviceGetPowerUsage","via":"/dev/mapper/stuck"}}'
event faulted "$(now)"
poll 10 blocked "$child"
event blocked "$(now)"
poll 15 hung_is_told && event told "$(now)"
event letters "$(letters "$child")"
{ read -r place < /proc/"$child"/wchan; event wchan "$place"; } 2>/dev/null
sleep 8
phase hung-stop
kill -TERM $agent
event asked "$(now)"
poll 15 mourned $agent && event gone "$(now)"
wait $agent; event code $?
agent=
event left "$(workers | tr '\n' ' ')"
phase hung-again
start_agent
poll 20 answers && event again "$(now)"
most=0
for _ in 1 2 3 4 5 6 7 8 9 10 11 12; do
  count=$(workers | wc -l); [ "$count" -gt $most ] && most=$count
  sleep 1
done
event most $most
# The proof that it was no sleep: nothing ends it.
kill -KILL "$child"; sleep 2
event survivor "$(workers | grep -x "$child")"
phase resumed
gpus $pump
dmsetup resume stuck
event resumed "$(now)"
next() { next=$(workers); [ -n "$next" ] && [ "$next" != "$child" ]; }
poll 60 next && event next "$next"
event next-at "$(now)"
sleep 8
# Two minutes and more after the finding's end, Prometheus' rules and the direct posts have let it go.
calm_at=$(cut -d. -f1 /run/calm-at)
until [ "$(cut -d. -f1 /proc/uptime)" -ge $((calm_at + ${RESOLVE:-190})) ]; do sleep 2; done
phase end

wait "${saver:-}" 2>/dev/null
kill $agent_watcher $kernel_watcher $agent $pump
wait $agent
echo "end,$(now),$(now)" >> /out/phases.csv
dmesg > /out/dmesg
rm -f /out/frames/*.new
