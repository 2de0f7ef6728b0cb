#!/usr/bin/env bash
# package.sh: makes build-package/ebro-VERSION-linux-ARCH.tar.gz, which runs wherever it is unpacked,
# with nothing installed but glibc: program, library, backend modules, headers, and the third-party
# libraries that they need, with their licences. With --check also unpacks and runs it in bare trees of
# other systems (as root; debootstrap makes them, once, in build-package/trees).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. tools/setup.sh
forget_settings
export LC_ALL=C

case "$#:${1-}" in
    0:) check=0 ;;
    1:--check) check=1 ;;
    *)
        echo "usage: tools/package.sh [--check]" >&2
        exit 1
        ;;
esac
[ "$(uname -s)" = Linux ] || die "this makes a package for Linux, on Linux"
if [ $check -eq 1 ] && [ "$(id -u)" -ne 0 ]; then die "--check runs the package under chroot: that needs root"; fi
folder=build-package

# elf_files FOLDER: its programs and libraries, links left out.
elf_files() {
    find "$1" -type f \( -name '*.so' -o -name '*.so.*' -o -path '*/bin/*' \) | sort
}

# needed FOLDER: lines "NAME PATH" of all libraries that the files of Ebro in it load, and those that
# these load; PATH is "not" where one is missing.
needed() {
    elf_files "$1" | grep -E '/(bin/[^/]*|libebro\.so\.[^/]*|ebro_[^/]*\.so)$' | xargs -d '\n' -n 1 ldd |
        awk '/=>/ { print $1, $3 }' | sort -u
}

# licence_of FILE INTO: the licence text of the Debian package that FILE belongs to.
licence_of() {
    local file package
    file=$(readlink -f "$1")
    # where /lib is a link to /usr/lib, dpkg may know either path
    package=$({ dpkg -S "$file" || dpkg -S "${file#/usr}"; } 2>/dev/null | head -n 1 | cut -d: -f1) ||
        die "$file belongs to no Debian package: where is its licence?"
    [ -s "/usr/share/doc/$package/copyright" ] || die "no licence: /usr/share/doc/$package/copyright"
    mkdir -p "$2/$package"
    cp -L "/usr/share/doc/$package/copyright" "$2/$package/copyright"
}

# bundle STAGE: copies what its files need beside the library, glibc left out: a system's own serves
# every program of the process. A name that is not listed here is a decision that nobody has made.
bundle() {
    local name path
    needed "$1" >"$folder/needed"
    while read -r name path; do
        case $name in
            libebro.so.* | libc.so.* | libm.so.* | libdl.so.* | libpthread.so.* | librt.so.*) continue ;;
            libpcre2-8.so.* | libjansson.so.* | libxxhash.so.*) ;;
            libedit.so.* | libbsd.so.* | libmd.so.* | libtinfo.so.*) ;;
            *) die "$name is needed: may it be bundled? Then it belongs into the list of tools/package.sh" ;;
        esac
        [ "$path" != not ] || die "$name is needed and not installed here"
        cp -L "$path" "$1/lib/$name"
        chmod 644 "$1/lib/$name"
        licence_of "$path" "$1/share/doc/ebro/third-party"
        bundled+=("$name")
    done <"$folder/needed"
}

# inspect STAGE: every library comes from the package or is glibc's, and no path of this machine
# is left in it. Sets $glibc to the version that its files need.
inspect() {
    local name path real
    real=$(readlink -f "$1")
    needed "$1" >"$folder/needed"
    while read -r name path; do
        case $name in libc.so.* | libm.so.* | libdl.so.* | libpthread.so.* | librt.so.*) continue ;; esac
        case $(readlink -f "$path") in
            "$real"/*) ;;
            *) die "$name would come from $path and not from the package" ;;
        esac
    done <"$folder/needed"
    if grep -rlF "$PWD" "$1"; then die "the files above hold a path of this machine"; fi
    glibc=$(elf_files "$1" | xargs -d '\n' objdump -T | grep -o 'GLIBC_[0-9.]*' | sed 's/GLIBC_//' |
        sort -uV | tail -n 1)
    [ -n "$glibc" ] || die "no glibc version was found in the package"
}

make_package() {
    local version epoch stage bundled=()
    need gcc libc6-dev cmake ninja-build pkg-config libpcre2-dev libjansson-dev libxxhash-dev \
        libedit-dev libmicrohttpd-dev
    # An old-style RPATH, unlike a RUNPATH, also serves the libraries that a bundled one needs.
    configure $folder -DEBRO_TESTS=OFF -DEBRO_STATIC=OFF -DCMAKE_INSTALL_LIBDIR=lib \
        -DCMAKE_EXE_LINKER_FLAGS=-Wl,--disable-new-dtags \
        -DCMAKE_SHARED_LINKER_FLAGS=-Wl,--disable-new-dtags >$folder.log 2>&1 ||
        { cat $folder.log >&2; die "configuring failed"; }
    rm -f $folder.log
    cmake --build $folder --parallel "$(jobs)"
    version=$(sed -n 's/^CMAKE_PROJECT_VERSION:[^=]*=//p' $folder/CMakeCache.txt)
    package=ebro-$version-linux-$(uname -m)
    stage=$folder/stage/$package
    rm -rf $folder/stage
    cmake --install $folder --strip --prefix "$stage" >/dev/null
    bundle "$stage"
    inspect "$stage"
    # The same files give the same archive.
    epoch=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
    tar --sort=name --owner=0 --group=0 --numeric-owner --mode=u+rw,go-w,a+rX --mtime="@$epoch" \
        -C $folder/stage -c "$package" | gzip -9n >"$folder/$package.tar.gz"
    rm -rf $folder/stage
    say "$folder/$package.tar.gz: $(($(stat -c %s "$folder/$package.tar.gz") / 1048576)) MiB, needs glibc $glibc or newer, brings ${bundled[*]}"
}

# ---- check

mounted=()
unmount() {
    local place
    for place in "${mounted[@]}"; do umount "$place"; done
    mounted=()
}
trap unmount EXIT

# check_in SUITE MIRROR KEYRING: runs the package in a bare tree of that system. Returns 2 where such a
# tree cannot be made here.
check_in() {
    local suite=$1 tree=$folder/trees/$1 script=/usr/share/debootstrap/scripts/$1 answer devices serve ok=1
    if [ ! -e "$3" ]; then
        say "$suite: skipped: there is no keyring $3 to check its packages with"
        return 2
    fi
    # debootstrap does not know releases younger than itself; Ubuntu's scripts are all one
    [ -e "$script" ] || script=/usr/share/debootstrap/scripts/gutsy
    if [ ! -e "$tree/complete" ]; then
        rm -rf "$tree"
        mkdir -p "$tree"
        say "$suite: debootstrap"
        if ! debootstrap --variant=minbase --keyring="$3" "$suite" "$tree" "$2" "$script" \
            >"$folder/trees/$suite.log" 2>&1; then
            tail -n 20 "$folder/trees/$suite.log"
            say "$suite: debootstrap failed"
            return 1
        fi
        touch "$tree/complete"
    fi
    rm -rf "$tree/opt" && mkdir "$tree/opt"
    tar -xzf "$folder/$package.tar.gz" -C "$tree/opt"
    # the dynamic linker asks /proc where a program lies
    mount -t proc proc "$tree/proc"
    mounted+=("$tree/proc")
    ln -sfn "/opt/$package/bin/ebro" "$tree/usr/local/bin/ebro"
    answer=$(chroot "$tree" ebro run --chat -p \
        "Remember: the code for Mira is 4821. What is the code for Mira?" </dev/null) || ok=0
    devices=$(chroot "$tree" ebro devices) || ok=0
    # what it does not bring it must ask for
    serve=$(chroot "$tree" ebro serve --port 0 2>&1) && ok=0
    unmount
    printf '%s\n%s\n%s\n' "$answer" "$devices" "$serve"
    [ $ok -eq 1 ] && [ "$answer" = 4821 ] && [ "${devices%%:*}" = CPU ] &&
        [[ $serve == *"the package libmicrohttpd12 "* ]] || return 1
    say "$suite: runs on $(sed -n 's/^PRETTY_NAME="\(.*\)"$/\1/p' "$tree/etc/os-release")"
}

check_package() {
    local checked=0 rc keys=/usr/share/keyrings suite
    need debootstrap
    for suite in bookworm trixie noble; do
        rc=0
        case $suite in
            noble) check_in noble http://archive.ubuntu.com/ubuntu $keys/ubuntu-archive-keyring.gpg || rc=$? ;;
            *) check_in $suite http://deb.debian.org/debian $keys/debian-archive-keyring.gpg || rc=$? ;;
        esac
        case $rc in
            0) checked=$((checked + 1)) ;;
            2) ;;
            *) die "$suite: the package does not run" ;;
        esac
    done
    [ $checked -gt 0 ] || die "the package was checked nowhere"
}

make_package
if [ $check -eq 1 ]; then check_package; fi
