#!/bin/sh
# Installs Hearth for one person, without an administrator: the program, its entry in the menu, its icons.
#   ./install.sh              into ~/.local; the version before stays beside the new one
#   ./install.sh --uninstall  takes away what it put there; chats and models stay
# lib/hearth/current leads to the version that starts (engine/library/updates/installed.py).
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
prefix=${PREFIX:-$HOME/.local}
target=$prefix/lib/hearth
version=@VERSION@

remove() {
    rm -rf -- "$target"
    for name in hearth hearth-engine; do
        if [ "$(readlink -- "$prefix/bin/$name" 2>/dev/null)" = "$target/current/$name" ]; then rm -- "$prefix/bin/$name"; fi
    done
    rm -f -- "$prefix/share/applications/io.github.hearth.Hearth.desktop" \
        "$prefix/share/metainfo/io.github.hearth.Hearth.metainfo.xml" \
        "$prefix/share/mime/packages/io.github.hearth.Hearth.xml" \
        "$prefix"/share/icons/hicolor/*/apps/io.github.hearth.Hearth.*
}

refresh() {
    command -v update-desktop-database >/dev/null && update-desktop-database -q "$prefix/share/applications" || true
    command -v update-mime-database >/dev/null && update-mime-database "$prefix/share/mime" || true
    command -v gtk-update-icon-cache >/dev/null && gtk-update-icon-cache -qtf "$prefix/share/icons/hicolor" || true
}

case ${1:-} in
--uninstall)
    remove
    refresh
    echo "Hearth is removed. Chats and models stay where they are: ${XDG_DATA_HOME:-$HOME/.local/share}/Hearth"
    ;;
'')
    mkdir -p "$target" "$prefix/bin" "$prefix/share"
    exec 9<"$target"
    if command -v flock >/dev/null && ! flock -n 9; then
        echo "Another installation of Hearth is running." >&2
        exit 1
    fi
    trap 'rm -rf -- "$target/new"' EXIT # a full disk
    rm -rf -- "$target/new"
    cp -R -- "$here/hearth" "$target/new"
    if ! "$target/new/hearth" --version >/dev/null; then
        echo "Hearth $version does not start on this system. Nothing was changed." >&2
        exit 1
    fi
    if [ -e "$target/hearth" ]; then # where one version had the whole folder
        find "$target" -mindepth 1 -maxdepth 1 ! -name new -exec rm -rf -- {} +
    fi
    before=$(readlink -- "$target/current" || true)
    rm -rf -- "$target/$version"
    mv -- "$target/new" "$target/$version"
    ln -sfn -- "$version" "$target/current.new"
    mv -fT -- "$target/current.new" "$target/current"
    for old in "$target"/*/; do
        case ${old%/} in
        "$target/$version" | "$target/$before" | "$target/current") ;;
        *) rm -rf -- "${old%/}" ;;
        esac
    done
    for name in hearth hearth-engine; do ln -sfn -- "$target/current/$name" "$prefix/bin/$name"; done
    cp -R -- "$here/share/." "$prefix/share/"
    escaped=$(printf %s "$prefix" | sed 's/[&|\\]/\\&/g')
    sed -e "s|^Exec=hearth|Exec=\"$escaped/bin/hearth\"|" -e '/^TryExec=/d' \
        "$here/share/applications/io.github.hearth.Hearth.desktop" \
        >"$prefix/share/applications/io.github.hearth.Hearth.desktop"
    refresh
    echo "Hearth is installed. Start it from the menu, or with $prefix/bin/hearth"
    ;;
*)
    echo "usage: ./install.sh [--uninstall]" >&2
    exit 2
    ;;
esac
