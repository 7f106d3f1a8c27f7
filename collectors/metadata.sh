# capture.json: what is known about the host and the recording, as JSON in pure ASCII.
# shellcheck shell=sh disable=SC2034,SC2154

# NUL-separated texts on stdin -> JSON strings in pure ASCII, one a line.  Bytes come through
# od because awk programs differ in what they do with NUL and with bytes above 127; what is
# not UTF-8 becomes U+FFFD.
json_strings() {
    od -An -v -tu1 | awk '
        function emit(c) {
            if (c == 34 || c == 92) s = s "\\" sprintf("%c", c)
            else if (c >= 32 && c < 127) s = s sprintf("%c", c)
            else if (c < 65536) s = s sprintf("\\u%04x", c)
            else { c -= 65536; s = s sprintf("\\u%04x\\u%04x", 55296 + int(c / 1024), 56320 + c % 1024) }
        }
        function broken() { if (need) { need = 0; emit(65533) } }
        { for (i = 1; i <= NF; i++) {
            b = $i + 0
            if (b >= 128 && b < 192 && need) {
                code = code * 64 + b - 128
                if (--need == 0) {
                    if (code < least || code > 1114111 || (code >= 55296 && code < 57344)) code = 65533
                    emit(code)
                }
                continue
            }
            broken()
            if (b == 0) { print "\"" s "\""; s = "" }
            else if (b < 128) emit(b)
            else if (b >= 194 && b < 224) { need = 1; code = b - 192; least = 128 }
            else if (b >= 224 && b < 240) { need = 2; code = b - 224; least = 2048 }
            else if (b >= 240 && b < 245) { need = 3; code = b - 240; least = 65536 }
            else emit(65533)
        } }'
}

# One text -> a JSON string; plain ones, nearly all, cost no process.
json_string() {
    case $1 in
    *[!A-Za-z0-9\ ./_:,=+@%\#\(\)~-]*) printf '%s\0' "$1" | json_strings ;;
    *) printf '"%s"\n' "$1" ;;
    esac
}

json_string_or_null() {
    if [ -n "$1" ]; then json_string "$1"; else echo null; fi
}

# 0 if no value is missing, as where awk was killed.
json_whole() { ! grep -q '^ *"[a-z_]*": *,*$' "$1"; }

# A list, or name and text pairs, from NUL-separated texts on stdin.
json_list() { json_strings | awk '{ printf "%s%s", (NR == 1 ? "" : ", "), $0 }'; }
json_pairs() { json_strings | awk '{ printf "%s%s", (NR == 1 ? "" : NR % 2 ? ", " : ": "), $0 }'; }

# What the kernel counted up to the end of the window, before all is drained: on a full disk there
# is no space for it yet.  And what time it is, as long as the recorder's clock can be read.
take_counts() {
    clock_pair
    end_cpu_time=$(host_cpu_time end)
    end_groups=$(host_groups end all)
    end_sched_ext=$(host_sched_ext | json_pairs)
}

write_counts() {
    [ -z "$end_cpu_time" ] || printf '%s\n' "$end_cpu_time" >>cputime.tsv
    [ -z "$end_groups" ] || printf '%s\n' "$end_groups" >>groups.tsv
}

# One (recorder's clock, wall clock) pair: the recorder's clock is read on both sides of the wall
# clock's, and half the distance is how wrong the pair can be.  A date that knows only seconds is
# wrong by up to half a second more.  Of three tries the best one is kept.
clock_pair() {
    clock_best='' clock_half=''
    for clock_try in 1 2 3; do
        host_clock
        clock_before=$clock_ns
        wall_ns=$(date +%s%N 2>/dev/null)
        clock_coarse=0
        case $wall_ns in *[!0-9]*) wall_ns= ;; esac
        if [ "${#wall_ns}" -lt 15 ]; then
            clock_coarse=500000000
            wall_ns=$(date +%s)$clock_coarse
        fi
        host_clock
        [ -n "$clock_before" ] && [ -n "$clock_ns" ] || return 0
        clock_wide=$((clock_ns + clock_step - clock_before))
        if [ -z "$clock_half" ] || [ $((clock_wide / 2 + clock_coarse)) -lt "$clock_half" ]; then
            clock_half=$((clock_wide / 2 + clock_coarse))
            clock_best="[$((clock_before + clock_wide / 2)), $wall_ns]"
        fi
    done
    clock_pairs="$clock_pairs${clock_pairs:+, }$clock_best"
    [ "${clock_error:-0}" -gt "$clock_half" ] || clock_error=$clock_half
}

# The parts of capture.json that stay the same while a recorder runs; found once.
json_system=
json_facts() {
    [ -z "$json_system" ] || return 0
    json_host=$(uname -n)
    # busybox prints the number and fails where there is no /etc/passwd.
    json_user=${run_user:-$(id -un 2>/dev/null)} || json_user=$(id -u)
    [ -z "$anonymous" ] || { json_host='' && json_user=''; }
    json_system="\"os\": $(json_string "$(uname -s)"),
  \"release\": $(json_string "$(uname -r)"),
  \"os_version\": $(json_string "$(uname -v)"),
  \"machine\": $(json_string "$(uname -m)"),
  \"hostname\": $(json_string_or_null "$json_host"),"
    json_user=$(json_string_or_null "$json_user")
    json_sched_ext=$(host_sched_ext | json_pairs)
}

write_json() {
    json_facts
    # shellcheck disable=SC2086
    recorder_tids=$(echo "$capture_pid" $recorder_pids | sed 's/ /, /g')
    json_complete=true
    losses_json=
    [ -z "$losses" ] || losses_json="
${losses%,?}
  "
    json_scheduler="\"tunables\": {$tunables_json}"
    [ -z "$json_sched_ext" ] || json_scheduler="$json_scheduler,
    \"sched_ext\": {\"begin\": {$json_sched_ext}, \"end\": {$end_sched_ext}}"
    [ -z "$fail_text" ] || json_complete=false
    json_interrupted=$interrupted
    [ -z "$fail_text" ] || json_interrupted=$fail_text
    cat <<END_JSON
{
  "format": "schedscope-capture",
  "version": 1,
  "complete": $json_complete,
  "interrupted": $(json_string_or_null "$json_interrupted"),
  $json_system
  "ncpu": ${host_ncpu:-null},
  "endian": $(json_string_or_null "$host_endian"),
  "long_bits": ${host_long_bits:-null},
  "page_size": ${host_page_size:-null},
  "recorder": {
    "name": "$recorder",
    "version": $(json_string_or_null "$recorder_version"),
    "command": $(json_string_or_null "$recorder_command"),
    "why": $(json_string_or_null "$recorder_why"),
    "quota_refills": ${recorder_refills:-false}
  },
  "scheduler": {
    "name": $(json_string_or_null "$host_scheduler"),
    $json_scheduler
  },
  "hz": ${host_hz:-null},
  "stathz": ${host_stathz:-null},
  "preempt": $(json_string_or_null "$host_preempt"),
  "clock": {
    "name": $(json_string_or_null "$host_clock_name"),
    "resolution_ns": ${host_clock_resolution:-null},
    "pairs": [$clock_pairs],
    "pair_error_ns": ${clock_error:-null}
  },
  "window": {"begin": ${window_begin:-null}, "end": ${window_end:-null}},
  "workload": {
    "command": $command_json,
    "pid": ${work_pid:-null},
    "exit_status": ${work_status:-null},
    "user": $json_user
  },
  "buffer_kb": ${buffer_kb:-null},
  "recorder_tids": [$recorder_tids],
$("${recorder}_json")
  "lost": [$losses_json],
  "notes": [$(printf '%s' "$notes" | tr '\n' '\0' | json_list)]
}
END_JSON
}
