#!/usr/bin/env bash
# Make two installers of a frozen program under Wine and try them: install, update while the program is open and after
# it was closed, an answer of the installed program, uninstall with both answers to "delete the data too?".
#
#   installer/windows/try_installer.sh PROGRAM ICONS INNO REPLACEMENTS
#
# PROGRAM: build/program/hearth, as windows_check.py --program leaves it. ICONS: made by installer/icons.py. INNO: Inno
# Setup 6, the npm package innosetup 6.4.1 unpacked. REPLACEMENTS: the DLLs that windows_check.py puts into system32.
# Needs Wine with its 32-bit part (Debian: wine, wine64, wine32:i386), xvfb and xdotool. Takes 5 to 7 minutes.
set -euo pipefail
[ $# = 4 ] || { sed -n '2,11s/^# \{0,1\}//p' "$0"; exit 2; }
program=$(realpath "$1") icons=$(realpath "$2") inno=$(realpath "$3") replacements=$(realpath "$4")
script=$(dirname "$(realpath "$0")")/hearth.iss
place=$(mktemp -d)
export WINEPREFIX=$place/prefix WINEDEBUG=-all KMP_AFFINITY=disabled DISPLAY=:77
export WINEDLLOVERRIDES="winemenubuilder.exe=d;mscoree,mshtml="

finish() {
    wineserver -k 2>/dev/null || true
    kill "$screen" 2>/dev/null || true
    rm -rf "$place"
}
trap finish EXIT
fail() { echo "FAILED: $*" >&2; exit 1; }
say() { echo "$(date +%T)  $*"; }
windows() { local path=Z:$1; echo "${path//\//\\}"; }
visible() { xdotool search --onlyvisible --name "$1" 2>/dev/null | tail -1; }
# Waits up to a minute for a condition.
wait_for() { for _ in $(seq 120); do if eval "$1"; then return 0; fi; sleep 0.5; done; return 1; }

Xvfb :77 -screen 0 1280x900x24 -nolisten tcp >/dev/null 2>&1 &
screen=$!
sleep 2
wineboot --init </dev/null >/dev/null 2>&1
wine winecfg -v win10 </dev/null >/dev/null 2>&1
wineserver --wait
[ -d "$WINEPREFIX/drive_c/windows/syswow64" ] || fail "this Wine has no 32-bit part"
cp "$replacements"/{ucrtbase,ucrtwine,icuuc,bcryptprimitives}.dll "$WINEPREFIX/drive_c/windows/system32/"
WINEDLLOVERRIDES="$WINEDLLOVERRIDES;ucrtbase=n,b;ucrtwine=n"
# Keeps Wine's services alive: otherwise they would hold the pipe below open.
setsid wine cmd /c "ping -n 1800 127.0.0.1" </dev/null >/dev/null 2>&1 &
sleep 3

local_data=$(ls -d "$WINEPREFIX"/drive_c/users/*/AppData/Local | grep -v Public | head -1)
installed=$local_data/Programs/Hearth data=$local_data/Hearth
version() { cat "$installed/_internal/version_of_trial.txt"; }

for number in 0.0.8 0.0.9; do
    echo $number > "$program/_internal/version_of_trial.txt"
    wine "$inno/bin/ISCC.exe" /Q /DQuick /DVersion=$number "/DProgram=$(windows "$program")" \
        "/DIcons=$(windows "$icons")" "/O$(windows "$place")" "$(windows "$script")" </dev/null >/dev/null 2>&1
    say "installer $number: $(du -m "$place/hearth-$number-windows-x86_64.exe" | cut -f1) MB"
done
rm "$program/_internal/version_of_trial.txt"
setup() { wine "$place/hearth-$1-windows-x86_64.exe" /VERYSILENT /SUPPRESSMSGBOXES </dev/null >/dev/null 2>&1; }

setup 0.0.8 || fail "the installer ended with $?"
[ "$(version)" = 0.0.8 ] || fail "it installed $(version)"
say "installed: $(du -sm "$installed" | cut -f1) MB"

wine "$installed/hearth.exe" </dev/null >/dev/null 2>&1 &
opened=$!
wait_for '[ -n "$(visible "^Hearth")" ]' || fail "no window"
sleep 6
if setup 0.0.9; then fail "it was updated while it was open"; fi
[ "$(version)" = 0.0.8 ] && kill -0 $opened || fail "the open program was touched"
say "an update is refused while the program is open"
xdotool windowfocus "$(visible "^Hearth")" key alt+F4 2>/dev/null
wait_for '! kill -0 '$opened' 2>/dev/null' || fail "Alt+F4 did not close the window"
setup 0.0.9 || fail "the update ended with $?"
[ "$(version)" = 0.0.9 ] || fail "it is still $(version)"
say "updated after it was closed"
answer=$(wine "$installed/hearth-engine.exe" generate starter-chat --prompt "What is the capital of France?" </dev/null 2>/dev/null | cat)
[[ $answer == *Paris* ]] || fail "the installed program answered: $answer"
say "it answers: ${answer%%[*}"

# Uninstalls and answers the question about the data with these keys.
uninstall() {
    wine "$installed/unins000.exe" </dev/null >/dev/null 2>&1 &
    wait_for '[ -n "$(visible Uninstall)" ]' || fail "the uninstaller asks nothing"
    sleep 1
    xdotool key alt+y 2>/dev/null
    wait_for '[ ! -e "$installed/hearth.exe" ]' || fail "the program was not removed"
    sleep 4
    xdotool key "$1" 2>/dev/null
    sleep 3
    xdotool key Return 2>/dev/null
    sleep 3
}
[ -e "$data/chats.db" ] || fail "the program left no data"
uninstall Return
[ -e "$data/chats.db" ] || fail "No deleted the data"
say "uninstalled; No keeps the data"
setup 0.0.9 || fail "it cannot be installed again"
uninstall alt+y
[ ! -e "$data" ] || fail "Yes left $(ls "$data")"
if wine reg query 'HKCU\Software\Classes\Hearth.gguf' </dev/null >/dev/null 2>&1; then fail "the registry keeps entries"; fi
say "uninstalled; Yes deletes the data"
