# Asking a flight recorder for a snapshot, and the unit that starts one with the host (main part:
# ring.sh).
# shellcheck shell=sh disable=SC2034,SC2154

# 0 if -o means the folder, whose whole path this is; .ring may be left out.
ring_meant() {
    for ring_name in "$output" "$output.ring"; do
        ring_name=$(cd -- "$start_dir" && cd -P -- "$ring_name" 2>/dev/null && pwd -P) || continue
        [ "$ring_name" != "$1" ] || return 0
    done
    return 1
}

# `capture --snapshot`: finds the recorder by its trace instance, which cannot be removed while it
# records, and by the folder that its process is in; never by a pid alone.
ring_ask() {
    ring_found='' ring_many=0
    for ring_path in /sys/kernel/tracing/instances/schedscope-*-*; do
        [ -d "$ring_path" ] || continue
        ring_pid=${ring_path##*/schedscope-}
        ring_pid=${ring_pid%%-*}
        # A container numbers its processes by itself; and another process may have that number by
        # now, and be in a folder of its user's.
        for ring_pid in $(ring_numbered "$ring_pid"); do
            [ "$(sed -n 's/^Uid:[^0-9]*\([0-9]*\).*/\1/p' "/proc/$ring_pid/status" 2>/dev/null)" = 0 ] || continue
            [ -f "/proc/$ring_pid/cwd/.scratch/ring" ] || continue
            read -r ring_other 2>/dev/null <"/proc/$ring_pid/cwd/.scratch/ring" || continue
            [ "$ring_other" = "${ring_path##*/}" ] || continue
            ring_at=$(readlink "/proc/$ring_pid/cwd")
            [ -z "$output" ] || ring_meant "$ring_at" || continue
            ring_found=$ring_pid
            ring_many=$((ring_many + 1))
        done
    done
    [ "$ring_many" -gt 0 ] || die "no flight recorder (capture --ring) is running here${output:+ for $output}"
    [ "$ring_many" = 1 ] || die "$ring_many flight recorders are running here; say which with -o NAME.ring"
    ring_at=/proc/$ring_found/cwd/.scratch
    ring_before=$(head -n 1 "$ring_at/answer" 2>/dev/null)
    kill -s USR1 "$ring_found" || die "the recorder (pid $ring_found) cannot be reached"
    ring_tries=0
    while :; do
        pause
        ring_now=$(head -n 1 "$ring_at/answer" 2>/dev/null)
        [ "$ring_now" = "$ring_before" ] || break
        ring_tries=$((ring_tries + 1))
        [ "$ring_tries" -lt 480 ] || die "the recorder (pid $ring_found) did not answer within two minutes"
    done
    ring_reason=$(sed 1d "$ring_at/answer")
    case $ring_now in *' 0') ;; *) die "no snapshot: $ring_reason" ;; esac
    printf '%s\n' "$ring_reason"
    exit_status=0
    leave
}

# The processes that have the pid $1 in their own namespace.
ring_numbered() {
    ring_numbers=$(grep -l "^NSpid:.*[^0-9]$1\$" /proc/[0-9]*/status 2>/dev/null | sed 's|[^0-9]||g')
    echo "${ring_numbers:-$1}"
}

# A word as systemd reads it in a command line.
ring_unit_word() { printf '"%s"' "$(printf '%s' "$1" | sed 's/[\\"]/\\&/g; s/%/%%/g; s/\$/$$/g')"; }

ring_unit_words() {
    while [ $# -gt 0 ]; do
        ring_words="$ring_words $(ring_unit_word "$1")"
        shift
    done
}

# `capture --systemd-unit`: a unit for systemd that records with these options.
ring_service() {
    ring_at=$here/capture
    [ -z "$bundled" ] || ring_at=$(cd -- "$(dirname -- "$0")" && pwd -P)/${0##*/}
    case $output in
    /*) ;;
    '') output=/var/lib/schedscope/flight ;;
    *) die "--systemd-unit needs the absolute path of a folder: -o /var/lib/schedscope/$output" ;;
    esac
    ring_words=
    ring_unit_words --ring "$ring" -o "$output" --pause "${ring_pause}s"
    [ -z "$keep" ] || ring_unit_words --keep "$keep"
    [ -z "$then_command" ] || ring_unit_words --then "$then_command"
    [ -z "$min_free" ] || ring_unit_words --min-free "$min_free"
    [ -z "$buffer_kb" ] || ring_unit_words -b "${buffer_kb}K"
    [ -z "$recorder_extras" ] || ring_unit_words --with "$(echo "$recorder_extras" | tr ' ' ',')"
    [ -z "$anonymous" ] || ring_unit_words --anonymous-host
    while IFS= read -r ring_line; do
        [ -z "$ring_line" ] || ring_unit_words --trigger "$ring_line"
    done <<END_TRIGGERS
$ring_triggers
END_TRIGGERS
    cat <<END_UNIT
# A flight recorder of the CPU scheduler, written by: capture --systemd-unit
#   capture --systemd-unit OPTIONS >/etc/systemd/system/schedscope-flight.service
#   systemctl daemon-reload && systemctl enable --now schedscope-flight
# systemctl reload schedscope-flight takes a snapshot.
[Unit]
Description=Flight recorder of the CPU scheduler
ConditionPathExists=/sys/kernel/tracing/instances

[Service]
Type=exec
ExecStartPre=/bin/mkdir -p -m 0755 $(ring_unit_word "${output%/*}")
ExecStart=/bin/sh $(ring_unit_word "$ring_at")$ring_words
ExecReload=/bin/kill -s USR1 \$MAINPID
# Only the recorder is signalled, and ends its own processes.
KillMode=mixed
TimeoutStopSec=60
Restart=on-failure
RestartSec=10
UMask=0077
NoNewPrivileges=yes
$([ -n "$then_command" ] || echo PrivateNetwork=yes)

[Install]
WantedBy=multi-user.target
END_UNIT
    exit_status=0
    leave
}
