#!/bin/sh
# Installs Hearth for one person, without an administrator: the program, its entry in the menu, its icons.
#   ./install.sh              into ~/.local
#   ./install.sh --uninstall  takes away what it put there; chats and models stay
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
prefix=${PREFIX:-$HOME/.local}
target=$prefix/lib/hearth

remove() {
    rm -rf -- "$target" "$target.new"
    for name in hearth hearth-engine; do
        if [ "$(readlink -- "$prefix/bin/$name" 2>/dev/null)" = "$target/$name" ]; then rm -- "$prefix/bin/$name"; fi
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
    mkdir -p "$prefix/lib" "$prefix/bin" "$prefix/share"
    rm -rf -- "$target.new"
    cp -R -- "$here/hearth" "$target.new"
    rm -rf -- "$target"
    mv -- "$target.new" "$target"
    for name in hearth hearth-engine; do ln -sfn -- "$target/$name" "$prefix/bin/$name"; done
    cp -R -- "$here/share/." "$prefix/share/"
    sed -e "s|^Exec=hearth|Exec=\"$prefix/bin/hearth\"|" -e '/^TryExec=/d' \
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
