#!/usr/bin/env bash
# install.sh: what `cmake --install` makes, used as a stranger would: moved to another place, and the
# examples built against it by pkg-config and by CMake, in C and in C++.
# BUILD: the build folder. SOURCE: the source folder. CC: the C compiler.
: "${BUILD:?the build folder}" "${SOURCE:?the source folder}" "${CC:?the C compiler}"
. "$SOURCE/tests/tap.sh"
unset DESTDIR LD_LIBRARY_PATH

libdir=$(sed -n 's/^CMAKE_INSTALL_LIBDIR:[^=]*=//p' "$BUILD/CMakeCache.txt")

# component NAME FILE...: installs it alone under DESTDIR; exactly these files, or links, came.
component() {
    local name=$1
    shift
    printf '%s\n' "$@" | sort >"$work/want"
    DESTDIR=$work/$name cmake --install "$BUILD" --prefix /opt/ebro --component "$name" \
        >"$work/log" 2>&1
    (cd "$work/$name/opt/ebro" && find . ! -type d | sed 's|^\./||' | sort) >"$work/have"
    diff "$work/want" "$work/have" >>"$work/log"
    result $? "the component $name is complete, and under DESTDIR"
    rm -rf "${work:?}/$name"
}
version=$(sed -n 's/^CMAKE_PROJECT_VERSION:[^=]*=//p' "$BUILD/CMakeCache.txt")
config=$(sed -n 's/^CMAKE_BUILD_TYPE:[^=]*=//p' "$BUILD/CMakeCache.txt" | tr '[:upper:]' '[:lower:]')
modules=()
for module in "$BUILD"/ebro_*.so; do
    module=$(basename "$module")
    [ "$module" = ebro_null.so ] || modules+=("$libdir/$module")
done
component runtime "$libdir/libebro.so.$version" "$libdir/libebro.so.0" "${modules[@]}" \
    share/doc/ebro/LICENSE
component program bin/ebro share/man/man1/ebro.1 share/doc/ebro/{API,CHECK}.md share/doc/ebro/demo-model/{README.md,THIRD_PARTY}
component development include/ebro/{ebro,backend}.h "$libdir/libebro.so" "$libdir/libebro.a" \
    "$libdir/pkgconfig/ebro.pc" "$libdir"/cmake/Ebro/EbroConfig{,Version}.cmake \
    "$libdir"/cmake/Ebro/Ebro{,Static}Targets{,-"$config"}.cmake share/doc/ebro/README.md \
    share/doc/ebro/docs/page.png share/doc/ebro/FORMAT.md share/doc/ebro/{embed,session,two}.c

# All of it, moved: whatever holds an absolute path to the first place fails from here on.
cmake --install "$BUILD" --prefix "$work/first" >"$work/log" 2>&1 && mv "$work/first" "$work/here"
result $? "all components"
here=$work/here
example=$here/share/doc/ebro/embed.c

prompt='The whale is'
"$here/bin/ebro" run -m "$SOURCE/model/demo" -p "$prompt" -n 48 >"$work/want" 2>"$work/log" &&
    [ "$(wc -c <"$work/want")" -gt 20 ]
result $? "the program answers"

# answers NAME PROGRAM: it says what the program of Ebro says.
answers() {
    "$2" "$SOURCE/model/demo" "$prompt" >"$work/have" 2>"$work/log" &&
        diff "$work/want" "$work/have" >>"$work/log"
    result $? "$1"
}

export PKG_CONFIG_PATH=$here/$libdir/pkgconfig
strict=(-Wall -Wextra -pedantic -Werror)

# shellcheck disable=SC2046
$CC -std=c11 "${strict[@]}" "$example" -o "$work/by_c" $(pkg-config --cflags --libs ebro) \
    -Wl,-rpath,"$here/$libdir" >"$work/log" 2>&1
result $? "the example compiles as C11 with pkg-config"
answers "the example in C says what ebro says" "$work/by_c"
"$work/by_c" "$work/no-such-folder" x >"$work/have" 2>"$work/log"
[ $? -eq 1 ] && [ ! -s "$work/have" ] && [ "$(wc -l <"$work/log")" -eq 1 ] &&
    grep -q '^embed: .*no-such-folder' "$work/log"
result $? "the example tells an error"

have_cxx=0
if echo 'int main() { return 0; }' | c++ -x c++ -o "$work/x" - 2>/dev/null; then
    have_cxx=1
    # shellcheck disable=SC2046
    c++ -x c++ -std=c++11 "${strict[@]}" "$example" -o "$work/by_cxx" \
        $(pkg-config --cflags --libs ebro) -Wl,-rpath,"$here/$libdir" >"$work/log" 2>&1
    result $? "the example compiles as C++11 with pkg-config"
    answers "the example in C++ says what ebro says" "$work/by_cxx"
else
    skip "the example in C++: no C++ compiler here"
fi

# The larger examples: say, in C and C++, what the small one says. A session is written in two parts.
# builds NAME PROGRAM COMPILER...: PROGRAM, of the installed NAME.c.
builds() {
    local name=$1 out=$2
    shift 2
    # shellcheck disable=SC2046
    "$@" "${strict[@]}" "$here/share/doc/ebro/$name.c" -o "$out" -x none \
        $(pkg-config --cflags --libs ebro) -pthread -Wl,-rpath,"$here/$libdir" >"$work/log" 2>&1
}

# goes_on PROGRAM: half of the text, then the rest from the file, is the whole text.
goes_on() {
    rm -f "$work/kept"
    {
        "$1" "$SOURCE/model/demo" "$work/kept" "$prompt" | tr -d '\n' &&
            "$1" "$SOURCE/model/demo" "$work/kept" ""
    } >"$work/have" 2>"$work/log" && grep -q 'goes on from' "$work/log" &&
        diff "$work/want" "$work/have" >>"$work/log"
}

# both PROGRAM: two engines at once say, each, what one says alone.
both() {
    local other='Once upon a time'
    {
        cat "$work/want"
        "$here/bin/ebro" run -m "$SOURCE/model/demo" -p "$other" -n 48 2>"$work/log"
    } >"$work/two"
    "$1" "$SOURCE/model/demo" "$prompt" "$other" >"$work/have" 2>"$work/log" &&
        diff "$work/two" "$work/have" >>"$work/log"
}

# stops PROGRAM: ctrl-C while it reads a long prompt ends it well; from the file it goes on to the
# text of a run that nothing has stopped.
stops() {
    local long pid result tries=0 model=$SOURCE/model/demo
    long=$(for i in $(seq 200); do printf 'Line %d says that the whale is large. ' "$i"; done)
    rm -f "$work/kept" "$work/whole"
    : >"$work/said"
    { "$1" "$model" "$work/whole" "$long" && "$1" "$model" "$work/whole" ""; } 2>"$work/log" |
        tr -d '\n' >"$work/two"
    "$1" "$model" "$work/kept" "$long" >"$work/have" 2>>"$work/said" &
    pid=$!
    until grep -q '100%' "$work/said" || [ $tries -ge 3000 ]; do
        tries=$((tries + 1))
        sleep 0.01
    done
    kill -INT $pid
    wait $pid
    result=$?
    cat "$work/said" >>"$work/log"
    [ $result -eq 0 ] && grep -q '^stopped: ' "$work/said" &&
        "$1" "$model" "$work/kept" "" >>"$work/have" 2>>"$work/log" &&
        [ "$(tr -d '\n' <"$work/have" | wc -c)" -gt 20 ] &&
        [[ "$(cat "$work/two")" == "$(tr -d '\n' <"$work/have")"* ]]
}

# larger LANGUAGE COMPILER...
larger() {
    local language=$1
    shift
    builds session "$work/session" "$@" && goes_on "$work/session"
    result $? "in $language, a session goes on from its file"
    builds two "$work/two_engines" "$@" && both "$work/two_engines"
    result $? "in $language, two engines at once say what each says alone"
}
larger C "$CC" -std=c11
stops "$work/session"
result $? "a session that was stopped in its prompt goes on to the same text"
if [ $have_cxx -eq 1 ]; then
    larger C++ c++ -x c++ -std=c++11
else
    skip "the larger examples in C++: no C++ compiler here"
fi

[ "$(pkg-config --modversion ebro)" = "$version" ] &&
    [ -e "$(pkg-config --variable=moduledir ebro)/ebro_cpu.so" ]
result $? "pkg-config knows the version and the folder of the modules"

mkdir "$work/user"
cp "$example" "$work/user/embed.c"
cp "$example" "$work/user/embed.cpp"
cat >"$work/user/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.13)
project(user LANGUAGES C)
find_package(Ebro 0.1 REQUIRED)
add_executable(user_c embed.c)
target_link_libraries(user_c Ebro::ebro)
add_executable(user_static embed.c)
target_link_libraries(user_static Ebro::ebro_static)
if(WITH_CXX)
  enable_language(CXX)
  add_executable(user_cxx embed.cpp)
  target_link_libraries(user_cxx Ebro::ebro)
endif()
if(NOT EXISTS ${Ebro_MODULE_DIR}/ebro_cpu.so)
  message(FATAL_ERROR "Ebro_MODULE_DIR is ${Ebro_MODULE_DIR}")
endif()
END
{
    cmake -S "$work/user" -B "$work/user/build" -DCMAKE_C_COMPILER="$CC" -DWITH_CXX=$have_cxx \
        -DCMAKE_PREFIX_PATH="$here" && cmake --build "$work/user/build"
} >"$work/log" 2>&1
result $? "the example builds with find_package(Ebro)"
answers "built by CMake it says what ebro says" "$work/user/build/user_c"
if [ $have_cxx -eq 1 ]; then
    answers "built by CMake as C++ it says what ebro says" "$work/user/build/user_cxx"
fi
# A program that holds the library itself looks for modules beside itself.
cp "$here/$libdir/ebro_cpu.so" "$work/user/build/"
answers "linked statically, modules beside it, it says what ebro says" "$work/user/build/user_static"

finish
