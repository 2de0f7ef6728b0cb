# shellcheck shell=bash
# setup.sh: sourced by the other scripts. Finds out what a machine lacks and installs it with apt-get.

say() { printf '== %s\n' "$*"; }
die() {
    printf 'error: %s\n' "$*" >&2
    exit 1
}

# has NAME: whether the machine has it. What counts is that it works, not which package it came from.
has() {
    case $1 in
        gcc | libc6-dev) echo 'int main(void) { return 0; }' | gcc -x c -o /dev/null - 2>/dev/null ;;
        g++) echo 'int main() { return 0; }' | g++ -x c++ -o /dev/null - 2>/dev/null ;;
        cmake) cmake --version >/dev/null 2>&1 ;;
        ninja-build) ninja --version >/dev/null 2>&1 || make --version >/dev/null 2>&1 ;;
        pkg-config) pkg-config --version >/dev/null 2>&1 ;;
        libpcre2-dev) pkg-config --exists libpcre2-8 2>/dev/null ;;
        libjansson-dev) pkg-config --exists jansson 2>/dev/null ;;
        libxxhash-dev) pkg-config --exists libxxhash 2>/dev/null ;;
        libedit-dev) pkg-config --exists libedit 2>/dev/null ;;
        # the program loads it when it runs
        libmicrohttpd-dev) pkg-config --exists libmicrohttpd 2>/dev/null ;;
        libcmocka-dev) pkg-config --exists cmocka 2>/dev/null ;;
        glslc) glslc --version >/dev/null 2>&1 ;;
        libvulkan-dev) echo '#include <vulkan/vulkan.h>' | gcc -fsyntax-only -x c - 2>/dev/null ;;
        mesa-vulkan-drivers) ls /usr/share/vulkan/icd.d/lvp_icd*.json >/dev/null 2>&1 ;;
        vulkan-validationlayers)
            ls /usr/share/vulkan/explicit_layer.d/VkLayer_khronos_validation.json >/dev/null 2>&1
            ;;
        clang) clang --version >/dev/null 2>&1 ;;
        libclang-rt-dev)
            echo '#include <stddef.h>
                  int LLVMFuzzerTestOneInput(const unsigned char *p, size_t n);
                  int LLVMFuzzerTestOneInput(const unsigned char *p, size_t n) { return p && n > 9; }' |
                clang -x c -fsanitize=fuzzer,address,undefined -o /dev/null - 2>/dev/null
            ;;
        curl) curl --version >/dev/null 2>&1 ;;
        python3) python3 --version >/dev/null 2>&1 ;;
        chromium) chromium --version >/dev/null 2>&1 ;;
        python3-venv) python3 -c 'import ensurepip, venv' 2>/dev/null ;;
        debootstrap) debootstrap --version >/dev/null 2>&1 ;;
        clang-format) clang-format --version >/dev/null 2>&1 ;;
        *) return 1 ;;
    esac
}

# need PACKAGE...: installs those that are missing, and does nothing at all when none is.
need() {
    local package missing=() as_root=()
    for package in "$@"; do has "$package" || missing+=("$package"); done
    if [ ${#missing[@]} -eq 0 ]; then
        say "nothing to install: $* are here"
        return
    fi
    command -v apt-get >/dev/null || die "missing: ${missing[*]} (Debian's names), and there is no apt-get to install them with"
    if [ "$(id -u)" -ne 0 ]; then
        command -v sudo >/dev/null || die "missing: ${missing[*]}; to install them this must run as root, or with sudo on the machine"
        as_root=(sudo)
    fi
    say "installing ${missing[*]}"
    "${as_root[@]}" apt-get update -q </dev/null
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -q --no-install-recommends "${missing[@]}" </dev/null
    for package in "${missing[@]}"; do
        has "$package" || die "$package was installed but does not work here"
    done
}

# configure FOLDER [CMake options]: Ninja where it is, unless the folder has chosen already.
configure() {
    local folder=$1 generator=()
    shift
    if [ ! -e "$folder/CMakeCache.txt" ] && command -v ninja >/dev/null; then generator=(-G Ninja); fi
    cmake -S . -B "$folder" "${generator[@]}" "$@"
}

jobs() { nproc 2>/dev/null || echo 2; }

# The program's own environment variables would change what the scripts see of it.
forget_settings() {
    local name
    for name in $(compgen -e); do
        case $name in
            EBRO_TEST_*) ;;
            EBRO_*) unset "$name" ;;
        esac
    done
}
