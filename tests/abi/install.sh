#!/usr/bin/env bash
# install.sh: what `cmake --install` makes, used as a stranger would: moved to another place, and an
# example built against it by pkg-config and by CMake, in C and in C++.
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
component program bin/ebro share/man/man1/ebro.1 share/doc/ebro/demo-model/{README.md,THIRD_PARTY}
component development include/ebro/{ebro,backend}.h "$libdir/libebro.so" "$libdir/libebro.a" \
    "$libdir/pkgconfig/ebro.pc" "$libdir"/cmake/Ebro/EbroConfig{,Version}.cmake \
    "$libdir"/cmake/Ebro/Ebro{,Static}Targets{,-"$config"}.cmake share/doc/ebro/{README.md,embed.c}

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
