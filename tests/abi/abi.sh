#!/usr/bin/env bash
# abi.sh: what the library and the modules offer and need, as files.
# BUILD: the build folder. SOURCE: the source folder. CC: the C compiler.
: "${BUILD:?the build folder}" "${SOURCE:?the source folder}" "${CC:?the C compiler}"
export LC_ALL=C
. "$SOURCE/tests/tap.sh"

# Names without symbol versions.
exports_of() { nm -D --defined-only "$1" | awk '{ sub(/@.*/, "", $NF); print $NF }' | sort -u; }
imports_of() { nm -D --undefined-only "$1" | awk '{ sub(/@.*/, "", $NF); print $NF }' | sort -u; }

library=$BUILD/libebro.so
modules=("$BUILD"/ebro_*.so)

# ---- exports

# A symbol that is new is added to symbols.txt; one that is gone breaks programs that use it.
exports_of "$library" | diff "$SOURCE/tests/abi/symbols.txt" - >"$work/log"
result $? "libebro.so exports what tests/abi/symbols.txt lists"

# The exports of the header, from the compiler's view of it.
echo '#include "ebro/ebro.h"' | $CC -E -P -I "$SOURCE/runtime/include" -x c - | tr '\n' ' ' |
    grep -o 'visibility("default")))[^(]*(' | sed 's/ *($//; s/.*[ *]//' | sort >"$work/header"
diff "$work/header" "$SOURCE/tests/abi/symbols.txt" >"$work/log"
result $? "ebro.h declares what tests/abi/symbols.txt lists"

for module in "${modules[@]}"; do
    exports_of "$module" >"$work/log"
    [ "$(cat "$work/log")" = ebro_backend_entry ]
    result $? "${module##*/} exports its entry alone"
done

# ---- imports

# What ends the process, prints, reads or changes the environment, or changes what all of the process
# shares. Not raise: with it runtime/base hands on a SIGBUS that is not the library's.
forbidden='abort exit _exit _Exit quick_exit atexit kill
printf fprintf vprintf vfprintf dprintf vdprintf puts putchar putc fputs fputc fwrite write perror psignal
__printf_chk __fprintf_chk __vprintf_chk __vfprintf_chk stdin stdout stderr syslog vsyslog
err errx warn warnx getenv secure_getenv __secure_getenv setenv unsetenv putenv clearenv environ __environ
system popen fork vfork execl execv execve execvp posix_spawn
chdir fchdir umask setlocale srand rand srandom random strtok'
# A Debug build asserts, and ends the process where that fails: it is no build to ship.
if ! grep -q '^CMAKE_BUILD_TYPE:[^=]*=Debug$' "$BUILD/CMakeCache.txt"; then
    forbidden+=' __assert_fail __assert'
fi
for file in "$library" "${modules[@]}"; do
    # shellcheck disable=SC2086
    imports_of "$file" | grep -Fx "$(printf '%s\n' $forbidden)" >"$work/log"
    [ $? -eq 1 ]
    result $? "${file##*/} neither ends, prints, reads the environment, nor changes the process"
done

# ---- the files themselves

readelf -d "$library" >"$work/log"
grep -q 'SONAME.*\[libebro\.so\.0\]' "$work/log"
result $? "libebro.so has the soname libebro.so.0"

for file in "$library" "${modules[@]}" "$BUILD/ebro"; do
    { readelf -dW "$file" && readelf -lW "$file"; } >"$work/log"
    ! grep -q TEXTREL "$work/log" && grep 'GNU_STACK' "$work/log" | grep -q ' RW '
    result $? "${file##*/} has no text relocations and no executable stack"
done

# ---- headers alone

# As users compile them: included, in both languages, under their own strict flags.
for compiler in "$CC" clang; do
    if ! command -v "$compiler" >/dev/null; then
        skip "headers with $compiler: not here"
        continue
    fi
    for language in c:c11 c:c17 c++:c++11 c++:c++17; do
        if ! echo 'int x;' | "$compiler" -x "${language%%:*}" -fsyntax-only - 2>"$work/log"; then
            skip "headers as ${language##*:} with ${compiler##*/}: it has no ${language%%:*}"
            continue
        fi
        for header in "$SOURCE"/runtime/include/ebro/*.h; do
            echo "#include \"ebro/${header##*/}\"" | "$compiler" -x "${language%%:*}" \
                -std="${language##*:}" -I "$SOURCE/runtime/include" -fsyntax-only -Wall -Wextra \
                -pedantic -Werror - >"$work/log" 2>&1
            result $? "${header##*/} compiles alone as ${language##*:} with ${compiler##*/}"
        done
    done
done

finish
