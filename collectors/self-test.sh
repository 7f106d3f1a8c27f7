# `capture --self-test`: proof that the recorders of this host are correct, or a precise fault.
#
# Each recorder records the known load (self-test-load.sh) through an ordinary run of this program;
# then the recording is judged by the kernel's own counts and by itself (self-test-judge.sh), with
# sh and awk alone. The report on stdout is meant to be sent on; exit status 0 says that every check
# of every recorder held.
# shellcheck shell=sh disable=SC2030,SC2031,SC2034,SC2154

self_test_version=1

# self_test: with -o FOLDER what was recorded stays there, for `capture --judge FOLDER`.
self_test() {
    self_program=$(cd -- "$(dirname -- "$0")" 2>/dev/null && pwd -P)/${0##*/}
    [ -r "$self_program" ] || die "--self-test needs this program as a file, and $0 is not one"
    case $seconds in *[!0-9]* | 0) die "--self-test takes whole seconds; try -d 8s" ;; esac
    self_kept=$output
    while [ "${self_kept%/}" != "$self_kept" ]; do self_kept=${self_kept%/}; done
    if [ -n "$self_kept" ]; then
        if [ -e "$self_kept" ] || [ -h "$self_kept" ]; then die "$self_kept exists; give another name with -o"; fi
        mkdir -m 700 -- "$self_kept" || die "cannot make the folder $self_kept; give a writable place with -o"
        self_folder=$self_kept
    else
        self_folder=$(mktemp -d "${TMPDIR:-/tmp}/schedscope-self-test.XXXXXX") || die "cannot make a folder in ${TMPDIR:-/tmp}"
    fi
    # From here on nothing is named from outside (folder.sh says why).
    if ! cd -P -- "$self_folder" || ! folder_is_ours; then
        die "somebody replaced $self_folder while it was made; give a place with -o where only you can write"
    fi
    [ -n "$self_kept" ] || self_temporary=$(folder_now)
    self_folder=. self_scratch=.
    self_recorders=$recorder
    [ -n "$self_recorders" ] || for self_candidate in $(host_prefers); do
        ! "${self_candidate}_probe" || self_recorders="$self_recorders $self_candidate"
    done
    [ -n "$self_recorders" ] || { listing='' && pick_recorder; }
    self_load=$(text self-test-load.sh)
    self_words=${seconds:-8}
    # The load is root's own: it binds and renices, and permissions are not tested here.
    find_user
    forget_user
    for self_recorder in $self_recorders; do
        say "recording the known load with $self_recorder, about $((self_words + 5)) s"
        sh "$self_program" -q -t "$self_recorder" ${buffer_kb:+-b "$buffer_kb"} -o "$self_folder/$self_recorder.capture" \
            -- sh -c "$self_load" self-test-load "$self_words" \
            >"$self_folder/$self_recorder.account" 2>"$self_folder/$self_recorder.said" </dev/null
        echo "$?" >"$self_folder/$self_recorder.status"
    done
    self_judge
    if [ -n "$self_kept" ]; then
        say "the recordings are in $self_kept"
        [ -z "$run_uid" ] || find . -exec chown -h "$run_uid:$run_gid" {} +
    fi
    leave
}

# --judge FOLDER: nothing is written into a folder that may belong to another user.
self_judge_kept() {
    self_folder=${judging%/}
    self_scratch=$(mktemp -d "${TMPDIR:-/tmp}/schedscope-self-test.XXXXXX") || die "cannot make a folder in ${TMPDIR:-/tmp}"
    self_temporary=$self_scratch
    self_judge
    leave
}

# Judges what lies in self_folder; sets exit_status.
self_judge() {
    self_bad=0 self_any=0
    {
        echo "schedscope self-test $self_test_version"
        for self_account in "$self_folder"/*.account; do
            [ -e "$self_account" ] || continue
            self_any=1
            self_recorder=${self_account##*/}
            self_recorder=${self_recorder%.account}
            self_one || self_bad=$((self_bad + 1))
        done
        echo
        if [ "$self_any" = 0 ]; then
            echo "result: FAILED, nothing was recorded"
        elif [ "$self_bad" = 0 ]; then
            echo "result: ok, every check held"
        else
            echo "result: FAILED with $self_bad of the recorders; please send this report"
        fi
    } >"$self_scratch/report.txt"
    cat "$self_scratch/report.txt"
    exit_status=1
    [ "$self_any" != 1 ] || [ "$self_bad" != 0 ] || exit_status=0
}

# A member of capture.json that stands on a line of its own.
self_member() { sed -n "s/^ *\"$1\": \"\{0,1\}\([^\",]*\)\"\{0,1\},*\$/\1/p" "$self_capture/capture.json" | tail -n 1; }

self_one() {
    self_capture=$self_folder/$self_recorder.capture
    echo
    if [ ! -s "$self_capture/capture.json" ]; then
        echo "== $self_recorder"
        self_line FAILED "it records" "a recording" "$(tail -n 1 "$self_folder/$self_recorder.said" 2>/dev/null)"
        return 1
    fi
    echo "== $self_recorder: $(self_member version), $(self_member os) $(self_member release) $(self_member machine), $(self_member ncpu) CPUs, scheduler $(self_scheduler)"
    self_failed=0 self_status=$(cat "$self_folder/$self_recorder.status" 2>/dev/null)
    self_check "the capture ends well" "status 0" "status ${self_status:-unknown}" [ "$self_status" = 0 ]
    self_check "the recording is complete" "true" "$(self_member complete)" [ "$(self_member complete)" = true ]
    self_lost=$(sed -n '/^  "lost": \[/,/\]/p' "$self_capture/capture.json" | grep -c '"reason"')
    self_check "the recorder reports no loss" "0 entries" "$self_lost entries" [ "$self_lost" = 0 ]
    self_whole=$(grep -c '^whole$' "$self_folder/$self_recorder.account")
    self_check "the load ran to its end" "whole" "$([ "$self_whole" = 1 ] && echo whole || echo cut)" [ "$self_whole" = 1 ]
    self_tab=$(printf '\t')
    "lines_$self_recorder" "$self_capture" | sort -k 2,2n -k 3,3n | judge_lines "$self_recorder" \
        "$self_folder/$self_recorder.account" >"$self_scratch/$self_recorder.checks"
    self_verdict=
    while IFS=$self_tab read -r self_result self_what self_expected self_found self_window self_switches; do
        if [ "$self_result" = verdict ]; then
            self_verdict=$self_what
            self_failed=$((self_failed + self_expected))
            echo "        window $self_window, $self_switches switches"
        else
            self_line "$self_result" "$self_what" "$self_expected" "$self_found"
        fi
    done <"$self_scratch/$self_recorder.checks"
    if [ -z "$self_verdict" ]; then
        self_line FAILED "the recording can be read" "lines of events" "none"
        self_failed=$((self_failed + 1))
    fi
    if [ "$self_failed" = 0 ]; then
        echo "   $self_recorder: ok"
        return 0
    fi
    echo "   $self_recorder: FAILED, $self_failed checks do not hold"
    sed 's/^/        said: /' "$self_folder/$self_recorder.said" 2>/dev/null | tail -n 5
    return 1
}

self_scheduler() { sed -n '/^  "scheduler"/,/}/s/^ *"name": "\{0,1\}\([^",]*\).*/\1/p' "$self_capture/capture.json"; }

# self_check CHECK EXPECTED FOUND TEST...
self_check() {
    self_1=$1 self_2=$2 self_3=$3
    shift 3
    if "$@"; then
        self_line ok "$self_1" "$self_2" "$self_3"
    else
        self_line FAILED "$self_1" "$self_2" "$self_3"
        self_failed=$((self_failed + 1))
    fi
}

self_line() { printf '%-7s %-40s expected %-30s found %s\n' "$1" "$2" "$3" "$4"; }
