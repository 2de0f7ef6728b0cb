#!/usr/bin/env bash
# lavapipe.sh PROGRAM [ARGUMENT...]: runs a program of ours with Mesa 26.1 or newer, on systems that are
# older. Its Vulkan driver for processors has cooperative matrices: f16, 8 x 8 x 8. (The libraries by
# which its drivers pretend hardware come with it, for tools/vendors.sh.)
# lavapipe.sh --make: only gets what that needs.
#
# Mesa comes from Debian 13's backports, with all libraries down to glibc, into a folder of its own
# (EBRO_LAVAPIPE_DIR, or ~/.cache/ebro/lavapipe; 310 MB), and the program runs through the loader of
# that folder, so that nothing of the system changes. Needs apt-get, dpkg and Debian's keyring, no
# root; and a program that was built with glibc 2.41 or older.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

dir=$(realpath -m "${EBRO_LAVAPIPE_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/ebro/lavapipe}")
lib=$dir/root/usr/lib/$(uname -m)-linux-gnu
packages=(mesa-vulkan-drivers mesa-drm-shim libvulkan1 libcmocka0 libpcre2-8-0 libjansson4
    libxxhash0 libedit2)

# The packages and all that they depend on, into $1/root.
fetch() {
    local options package
    mkdir -p "$1"/{lists/partial,cache/archives/partial,root}
    : >"$1/status"
    cat >"$1/debian.sources" <<'SOURCES'
Types: deb
URIs: http://deb.debian.org/debian
Suites: trixie trixie-backports
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
SOURCES
    options=(-q -o "Dir::Etc::sourcelist=$1/debian.sources" -o Dir::Etc::sourceparts=-
        -o "Dir::State::Lists=$1/lists" -o "Dir::State::status=$1/status" -o "Dir::Cache=$1/cache"
        -o Dir::Etc::preferences=/dev/null -o Dir::Etc::preferencesparts=/dev/null
        -o APT::Install-Recommends=false -o APT::Update::Error-Mode=any
        -o "APT::Sandbox::User=$(id -un)")
    apt-get "${options[@]}" update &&
        apt-get "${options[@]}" -y --download-only -t trixie-backports install "${packages[@]}" ||
        return 1
    for package in "$1"/cache/archives/*.deb; do dpkg -x "$package" "$1/root" || return 1; done
    rm -rf "$1/cache" "$1/lists"
}

# The folder appears when it is complete.
make() {
    local new
    if [ -e "$dir/lvp_icd.json" ]; then return 0; fi
    command -v apt-get >/dev/null || die "Mesa 26.1 comes from Debian's packages: there is no apt-get"
    mkdir -p "$(dirname "$dir")"
    new=$(mktemp -d "$dir.XXXXXX")
    if ! fetch "$new" >&2; then
        rm -rf "$new"
        die "Mesa 26.1 could not be had from deb.debian.org"
    fi
    sed "s|\"library_path\": *\"|&$lib/|" "$new/root/usr/share/vulkan/icd.d/lvp_icd.json" \
        >"$new/lvp_icd.json"
    chmod 755 "$new"
    if ! mv -T "$new" "$dir" 2>/dev/null; then
        rm -rf "$new"
        [ -e "$dir/lvp_icd.json" ] || die "$dir is in the way"
    fi
}

case "$#:${1-}" in
    0: | *:--help | *:-h)
        echo "usage: tools/lavapipe.sh --make | PROGRAM [ARGUMENT...]" >&2
        exit 1
        ;;
    1:--make) make ;;
    *)
        make
        loader=$(echo "$lib"/ld-linux-*.so.*)
        VK_DRIVER_FILES=$dir/lvp_icd.json VK_ICD_FILENAMES=$dir/lvp_icd.json \
            exec "$loader" --library-path "$lib" "$@"
        ;;
esac
