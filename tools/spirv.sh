#!/usr/bin/env bash
# spirv.sh: the kernels that the compilers of older distributions do not know (cooperative matrices,
# bf16) are kept compiled, in shaders/vulkan/spv/modules.tar.xz. This makes them: those variants of
# kernels.def that define EB_MATRIX. --check only says, as TAP, whether the manifest still fits the
# sources. Needs CMake, which packs and unpacks the archive as the build does.
#
# The compiler is the machine's glslc if it is new enough. Else Debian's newest is unpacked into a
# folder of its own (EBRO_GLSLC_DIR, or ~/.cache/ebro/glslc) and run through its own loader, so that
# nothing of the system changes; needs apt-get, dpkg and Debian's keyring.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
shaders=shaders/vulkan
spv=$PWD/$shaders/spv
unpacked=$(mktemp -d)
trap 'rm -rf "$unpacked"' EXIT

# Lines "kernel_variant place source defines" of the variants to make.
variants() {
    local line
    declare -A places
    while IFS= read -r line; do
        if [[ $line =~ ^KERNEL\(([a-z0-9_]+),\ [a-z0-9_]+,\ (PUSH|FAR)\) ]]; then
            places[${BASH_REMATCH[1]}]=${BASH_REMATCH[2]}
        elif [[ $line =~ ^VARIANT\(([a-z0-9_]+),\ ([a-z0-9_]+),\ ([a-z0-9_]+),.*\"(.*-DEB_MATRIX.*)\"\) ]]; then
            echo "${BASH_REMATCH[1]}_${BASH_REMATCH[2]} ${places[${BASH_REMATCH[1]}]}" \
                "${BASH_REMATCH[3]} ${BASH_REMATCH[4]}"
        fi
    done <$shaders/kernels.def
}

# The files that a source includes, itself first, each once.
closure() {
    local queue=("$1") file name at
    declare -A seen=()
    while [ ${#queue[@]} -gt 0 ]; do
        file=${queue[0]}
        queue=("${queue[@]:1}")
        if [ -n "${seen[$file]-}" ]; then continue; fi
        seen[$file]=1
        echo "$file"
        while IFS= read -r name; do
            for at in "$shaders/$name" "shaders/$name"; do
                if [ -e "$at" ]; then queue+=("$at"); fi
            done
        done < <(sed -n 's/^#include "\(.*\)".*/\1/p' "$file")
    done
}

# What a module is made of: all sources, place and defines.
hash_of() {
    local place=$1 source=$2 files
    shift 2
    mapfile -t files < <(closure "$shaders/$source.comp")
    { cat "${files[@]}" && echo "$place $*"; } | sha256sum | cut -d' ' -f1
}

check() {
    local n=0 bad=0 name place source defines want
    (cd "$unpacked" && cmake -E tar xf "$spv/modules.tar.xz")
    while read -r name place source defines; do
        n=$((n + 1))
        # shellcheck disable=SC2086 # defines are words
        want="$(hash_of "$place" "$source" $defines) $(sha256sum <"$unpacked/$name.spv" | cut -d' ' -f1)"
        if grep -q "^$name $want " "$spv/manifest"; then
            echo "ok $n - $name"
        else
            echo "not ok $n - $name: run tools/spirv.sh, its sources have changed"
            bad=1
        fi
    done < <(variants)
    echo "1..$n"
    return $bad
}

# Sets `glslc`, a command.
find_glslc() {
    local dir=${EBRO_GLSLC_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/ebro/glslc} lib
    glslc=(glslc)
    if glslc --target-env=vulkan1.2 -fshader-stage=comp -o /dev/null - 2>/dev/null <<'GLSL'; then return; fi
#version 450
#extension GL_KHR_cooperative_matrix : require
#extension GL_EXT_bfloat16 : require
void main() {}
GLSL
    lib=$dir/root/usr/lib/$(uname -m)-linux-gnu
    if [ ! -x "$dir/root/usr/bin/glslc" ]; then fetch_glslc "$dir"; fi
    glslc=("$(echo "$lib"/ld-linux-*.so.*)" --library-path "$lib" "$dir/root/usr/bin/glslc")
}

fetch_glslc() {
    local dir=$1 options
    mkdir -p "$dir"/{lists/partial,cache/archives/partial,packages,root}
    cat >"$dir/sid.sources" <<'SOURCES'
Types: deb
URIs: http://deb.debian.org/debian
Suites: sid
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
SOURCES
    options=(-q -o "Dir::Etc::sourcelist=$dir/sid.sources" -o Dir::Etc::sourceparts=-
        -o "Dir::State::Lists=$dir/lists" -o "Dir::Cache=$dir/cache")
    apt-get "${options[@]}" update
    (cd "$dir/packages" && apt-get "${options[@]}" download glslc libshaderc1 spirv-tools libc6 \
        libstdc++6 libgcc-s1)
    for package in "$dir"/packages/*.deb; do dpkg -x "$package" "$dir/root"; done
}

make() {
    local name place source defines tool
    find_glslc
    tool=$("${glslc[@]}" --version | sed -n 's/^shaderc \([^ ]*\).*/\1/p')
    mkdir -p "$spv"
    : >"$spv/manifest.new"
    while read -r name place source defines; do
        # shellcheck disable=SC2086
        "${glslc[@]}" --target-env=vulkan1.2 -O -DEB_GLSL "-DEB_$place" $defines -Ishaders \
            -I$shaders -o "$unpacked/$name.spv" "$shaders/$source.comp" </dev/null
        # shellcheck disable=SC2086
        echo "$name $(hash_of "$place" "$source" $defines)" \
            "$(sha256sum <"$unpacked/$name.spv" | cut -d' ' -f1) shaderc-$tool" >>"$spv/manifest.new"
    done < <(variants)
    # The same modules give the same archive.
    (cd "$unpacked" && cmake -E tar cJf "$spv/modules.tar.xz" --mtime=1970-01-01 -- *.spv)
    mv "$spv/manifest.new" "$spv/manifest"
    cat "$spv/manifest"
}

case "$#:${1-}" in
    0:) make ;;
    1:--check) check ;;
    *)
        echo "usage: tools/spirv.sh [--check]" >&2
        exit 1
        ;;
esac
