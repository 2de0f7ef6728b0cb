# install.cmake: what `cmake --install` puts where. Components: runtime (library and backend modules),
# program, development (headers, link names, pkg-config file, CMake package). Making a tarball of it is
# tools/package.sh's job.
#
# The library looks for modules in its own folder, so they lie beside it in the library folder. The
# null backend is for tests and authors of backends: it is not installed.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

option(EBRO_STATIC "Build and install libebro.a too" ON)

# What is installed finds its parts by relative paths, so that the prefix can be moved as a whole.
if(IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}" OR IS_ABSOLUTE "${CMAKE_INSTALL_BINDIR}" OR
   IS_ABSOLUTE "${CMAKE_INSTALL_INCLUDEDIR}")
  message(FATAL_ERROR "CMAKE_INSTALL_LIBDIR, _BINDIR and _INCLUDEDIR must be relative to the prefix")
endif()
file(RELATIVE_PATH EBRO_BIN_TO_LIB "/${CMAKE_INSTALL_BINDIR}" "/${CMAKE_INSTALL_LIBDIR}")
file(RELATIVE_PATH EBRO_PC_TO_PREFIX "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
string(REGEX REPLACE "/$" "" EBRO_PC_TO_PREFIX "${EBRO_PC_TO_PREFIX}")

# $ORIGIN in the library finds third-party libraries that lie beside it, where a package brings some.
set_target_properties(ebro PROPERTIES INSTALL_RPATH "$ORIGIN")
target_include_directories(ebro INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
install(TARGETS ebro EXPORT EbroTargets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime
        NAMELINK_COMPONENT development)
set(EBRO_SHIPPED_MODULES ${EBRO_MODULES})
list(REMOVE_ITEM EBRO_SHIPPED_MODULES ebro_null)
install(TARGETS ${EBRO_SHIPPED_MODULES} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT runtime)

set_target_properties(ebro_program PROPERTIES INSTALL_RPATH "$ORIGIN/${EBRO_BIN_TO_LIB}")
# The program holds the runtime itself, so it must be told where the library's modules lie.
target_compile_definitions(ebro_program PRIVATE EBRO_BIN_TO_LIB="${EBRO_BIN_TO_LIB}")
install(TARGETS ebro_program RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT program)
install(FILES tools/serve/API.md tools/ebro/CHECK.md DESTINATION ${CMAKE_INSTALL_DOCDIR}
        COMPONENT program)
install(FILES tools/ebro/ebro.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT program)
# Of the demo model that the program holds.
install(FILES model/demo/README.md model/demo/THIRD_PARTY
        DESTINATION ${CMAKE_INSTALL_DOCDIR}/demo-model COMPONENT program)

install(FILES runtime/include/ebro/ebro.h runtime/include/ebro/backend.h
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/ebro COMPONENT development)
install(FILES README.md runtime/mem/FORMAT.md tools/embed/embed.c tools/embed/session.c
              tools/embed/two.c
        DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT development)
install(FILES docs/page.png DESTINATION ${CMAKE_INSTALL_DOCDIR}/docs COMPONENT development)

# The static library has an export of its own: what it needs must be there to use it, while a user of
# the shared one needs nothing.
if(EBRO_STATIC)
  add_library(ebro_static STATIC ${EBRO_OBJECTS})
  set_target_properties(ebro_static PROPERTIES OUTPUT_NAME ebro
                        ARCHIVE_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
  target_include_directories(ebro_static
                             INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_link_libraries(ebro_static PRIVATE PkgConfig::PCRE2 PkgConfig::JANSSON PkgConfig::XXHASH m
                        ${CMAKE_DL_LIBS})
  install(TARGETS ebro_static EXPORT EbroStaticTargets
          ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
  install(EXPORT EbroStaticTargets NAMESPACE Ebro:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/Ebro
          COMPONENT development)
endif()

configure_file(tools/cmake/ebro.pc.in ebro.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/ebro.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig
        COMPONENT development)
configure_package_config_file(tools/cmake/EbroConfig.cmake.in EbroConfig.cmake
                              INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/Ebro
                              PATH_VARS CMAKE_INSTALL_LIBDIR)
# Structs only grow at their end and symbols stay, as the soname promises.
write_basic_package_version_file(EbroConfigVersion.cmake COMPATIBILITY SameMajorVersion)
install(EXPORT EbroTargets NAMESPACE Ebro:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/Ebro
        COMPONENT development)
install(FILES ${CMAKE_BINARY_DIR}/EbroConfig.cmake ${CMAKE_BINARY_DIR}/EbroConfigVersion.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/Ebro COMPONENT development)
