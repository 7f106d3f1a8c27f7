# The folder being written. `capture` lives in it (its working directory) and names nothing in it by
# a path from outside: so the command cannot redirect it by renaming the folder or putting something
# in its place. Only root can enter it until it is handed over.
# shellcheck shell=sh disable=SC2034,SC2154

# Makes NAME.partial beside where NAME will be and goes there. A user who may write to the parent
# could have replaced it before we entered: then its name, owner, mode or content differs from what
# was made.
folder_make() {
    case $output in
    */*) folder_parent=${output%/*}/ ;;
    *) folder_parent=. ;;
    esac
    base=${output##*/}
    partial=$base.partial
    cd -- "$folder_parent" 2>/dev/null || die "cannot make the folder $output.partial: the folder $folder_parent does not exist or cannot be entered"
    folder_parent=$(folder_now) || die "cannot tell where $output.partial would be; give an absolute path with -o"
    for path in "$base" "$partial"; do
        if [ -e "./$path" ] || [ -h "./$path" ]; then
            die "$path exists; give another name with -o, or remove it with: rm -r $path"
        fi
    done
    folder_tell_left
    folder_mkdir "$output.partial"
    folder_path=${folder_parent%/}/$partial
    if ! cd -P "./$partial" || [ "$(folder_now)" != "$folder_path" ] || ! folder_is_ours; then
        folder_new=
        die "somebody replaced $folder_path while it was made; give a place with -o where only you can write"
    fi
    capture_dir=.
    folder_new=
    scratch=.scratch
    mkdir -m 700 "$scratch" || die "cannot write into $output.partial"
}

# Names the folders of captures that were killed: what they recorded can be opened. Captures with a
# live process are not listed.
folder_tell_left() {
    for path in ./*.capture.partial; do
        [ -s "$path/capture.json" ] || continue
        folder_alive=
        if [ -e "$path/.scratch" ]; then
            [ -s "$path/.scratch/pids" ] || continue
            while read -r folder_pid; do
                ! kill -0 "$folder_pid" 2>/dev/null || folder_alive=1
            done <"$path/.scratch/pids"
        fi
        [ -n "$folder_alive" ] || say "${path#./} is of a capture that was killed; schedscope opens it, rm -r removes it"
    done
}

# Makes the folder "$partial", which messages call $1.  A signal is heard once mkdir is done: from
# before it until the folder is known to be ours, there may be one to unmake.
folder_mkdir() {
    folder_new=1
    mkdir -m 700 "./$partial" && return
    folder_new=
    die "cannot make the folder $1; give a writable place with -o"
}

# Removes the folder that was just made: we are beside it, or in it.
folder_unmake() { rmdir "./$partial" 2>/dev/null || rmdir "../$partial" 2>/dev/null; }

# The working directory as the kernel knows it: shells answer from memory.
folder_now() { env pwd -P; }

folder_is_ours() {
    # shellcheck disable=SC2012
    case $(ls -ldn . | awk '{ print substr($1, 1, 10), $3; exit }') in
    "drwx------ $(id -u)" | "drwx--S--- $(id -u)") ;;
    *) return 1 ;;
    esac
    [ -z "$(ls -A .)" ]
}

# The checksum of every file but capture.json, which its owner may add labels to: a reader can tell
# what was damaged since.  A capture without checksums is complete, too.
folder_checksums() {
    if find . -type f ! -name 'capture.json*' ! -name 'checksums*' -exec cksum {} + 2>/dev/null |
        LC_ALL=C sed 's|^\([0-9]* [0-9]*\) \./|\1 |' 2>/dev/null >checksums.new &&
        [ -s checksums.new ]; then
        mv checksums.new checksums
    else
        rm -f checksums.new
    fi
}

# Gives the folder its name and its owner.  No link is followed: the names are those beside the
# folder itself, and mv must not move it into a folder that may have that name now.
folder_hand_over() {
    if [ -n "$run_uid" ]; then
        find . -name . -o -exec chown -h "$run_uid:$run_gid" {} + || return 1
    fi
    if mv --help 2>&1 | grep -q no-target-directory; then
        mv -T -- "../$partial" "../$base"
    elif [ "$(uname -s)" = FreeBSD ]; then
        [ ! -e "../$base" ] && mv -h "../$partial" "../$base"
    else
        [ ! -e "../$base" ] && [ ! -h "../$base" ] && mv "../$partial" "../$base"
    fi 2>/dev/null
    if [ "$(folder_now)" != "${folder_parent%/}/$base" ]; then
        tell "the folder could not be renamed to $base; it is: $(folder_now)"
        folder_astray=1
        output=$(folder_now)
    fi
    # The last step: from here on it belongs to the user, and nothing more is written into it.
    [ -z "$run_uid" ] || chown "$run_uid:$run_gid" .
}

# Removes what was written, and the folder if it still has its name.
folder_remove() {
    rm -rf ./* ./.scratch ./.reserve ./.[!.]*
    cd .. && rmdir "./$partial" 2>/dev/null
}
