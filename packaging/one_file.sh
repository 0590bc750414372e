#!/bin/sh
# Office Chat as one file. It unpacks itself once into a folder of its own, which stays, and runs from there: a
# temporary folder would be emptied by cleaners while the program runs for days, and unpacking takes longer than starting.
set -eu
PATH=${PATH:-/usr/local/bin:/usr/bin:/bin}
export PATH
name=@NAME@
first_line=@FIRST_LINE@

if [ -n "${XDG_DATA_HOME:-}" ]; then
    place=$XDG_DATA_HOME/office-chat-program
else
    place=${HOME:-$(getent passwd "$(id -u)" | cut -d: -f6)}/.local/share/office-chat-program
fi
folder=$place/$name

is_whole() {
    [ -x "$1/office-chat" ] && [ -f "$1/files.txt" ] && (
        cd "$1"
        while IFS= read -r file; do [ -e "$file" ] || exit 1; done <files.txt
    )
}

if ! is_whole "$folder"; then
    echo "Office Chat: unpacking into $folder, once..." >&2
    mkdir -p "$place"
    part=$(mktemp -d "$place/unpacking.XXXXXX")
    trap 'rm -rf "$part"' EXIT
    trap 'exit 1' HUP INT TERM
    unpacked=0
    tail -n "+$first_line" "$0" | tar -xzf - -C "$part" || unpacked=$?
    if [ "$unpacked" = 0 ] && [ -f "$part/office-chat" ] && [ ! -x "$part/office-chat" ]; then
        echo "Office Chat: programs may not run in $place (its disk is mounted noexec)." \
            "Set XDG_DATA_HOME to a folder where they may." >&2
        exit 1
    fi
    if [ "$unpacked" != 0 ] || ! is_whole "$part"; then
        echo "Office Chat: $0 is not whole, or the disk is full. Copy the file again, in full, or make room." >&2
        exit 1
    fi
    chmod 755 "$part"
    rm -rf "$folder"
    # Another start may have been faster; then its folder is as good.
    mv -T "$part" "$folder" 2>/dev/null || is_whole "$folder"
    trap - EXIT HUP INT TERM
    rm -rf "$part"
fi
exec "$folder/office-chat" "$@"
