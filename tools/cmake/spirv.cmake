# spirv.cmake: compiles the kernels that shaders/vulkan/kernels.def lists and embeds them.

# Modules that were compiled beforehand (tools/spirv.sh), anew only when the archive is another one.
function(ebro_unpack_spirv archive folder)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${archive})
  file(SHA256 ${archive} hash)
  if(EXISTS ${folder}/unpacked)
    file(READ ${folder}/unpacked there)
  endif()
  if(NOT "${there}" STREQUAL ${hash})
    file(REMOVE_RECURSE ${folder})
    file(ARCHIVE_EXTRACT INPUT ${archive} DESTINATION ${folder} TOUCH)
    file(WRITE ${folder}/unpacked ${hash})
  endif()
endfunction()

# Compiles shaders/vulkan/SOURCE.comp, whose arguments lie in PLACE, with those defines.
function(ebro_compile_kernel module source place)
  set(shaders ${CMAKE_SOURCE_DIR}/shaders)
  get_filename_component(name ${module} NAME_WE)
  add_custom_command(
    OUTPUT ${module}
    COMMAND ${EBRO_GLSLC} --target-env=vulkan1.2 -O -DEB_GLSL -DEB_${place} ${ARGN}
            -I${shaders} -I${shaders}/vulkan -MD -MF ${module}.d -o ${module}
            ${shaders}/vulkan/${source}.comp
    DEPENDS ${shaders}/vulkan/${source}.comp ${shaders}/vulkan/kernels.def
    DEPFILE ${module}.d
    COMMENT "Kernel ${name}"
    VERBATIM)
endfunction()

# ebro_spirv(TARGET): one SPIR-V module per VARIANT, as eb_spv_<kernel>_<variant> to _end, in 32-bit
# words. kernels.def is read as text: one KERNEL or VARIANT a line. The global property
# EBRO_KERNEL_<kernel>_<variant> keeps source, place and defines, for tests that compile it otherwise.
function(ebro_spirv target)
  set(shaders ${CMAKE_SOURCE_DIR}/shaders)
  set(listing ${shaders}/vulkan/kernels.def)
  set(folder ${CMAKE_BINARY_DIR}/spv)
  file(MAKE_DIRECTORY ${folder})
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${listing})
  file(STRINGS ${listing} lines REGEX "^(KERNEL|VARIANT)\\(")
  set(assembly "/* The kernels of shaders/vulkan/kernels.def. Written by the build. */\n.section .rodata\n")
  set(modules "")
  ebro_unpack_spirv(${shaders}/vulkan/spv/modules.tar.xz ${folder}/made)
  foreach(line IN LISTS lines)
    if(line MATCHES "^KERNEL\\(([a-z0-9_]+), [a-z0-9_]+, (PUSH|FAR)\\)")
      set(place_${CMAKE_MATCH_1} ${CMAKE_MATCH_2})
    elseif(line MATCHES "^VARIANT\\(([a-z0-9_]+), ([a-z0-9_]+), ([a-z0-9_]+), [^,]*, \"(.*)\"\\)")
      set(kernel ${CMAKE_MATCH_1})
      set(name ${CMAKE_MATCH_1}_${CMAKE_MATCH_2})
      set(source ${CMAKE_MATCH_3})
      separate_arguments(defines UNIX_COMMAND "${CMAKE_MATCH_4}")
      set(module ${folder}/${name}.spv)
      # Made beforehand, for what older compilers do not know: tools/spirv.sh.
      if(EXISTS ${folder}/made/${name}.spv)
        set(module ${folder}/made/${name}.spv)
      else()
        ebro_compile_kernel(${module} ${source} ${place_${kernel}} ${defines})
        set_property(GLOBAL PROPERTY EBRO_KERNEL_${name} ${source} ${place_${kernel}} ${defines})
      endif()
      list(APPEND modules ${module})
      string(APPEND assembly
        ".balign 4\n.hidden eb_spv_${name}\n.globl eb_spv_${name}\neb_spv_${name}:\n.incbin \"${module}\"\n"
        ".hidden eb_spv_${name}_end\n.globl eb_spv_${name}_end\neb_spv_${name}_end:\n")
    else()
      message(FATAL_ERROR "${listing}: not as its head says: ${line}")
    endif()
  endforeach()
  string(APPEND assembly ".section .note.GNU-stack,\"\",%progbits\n")
  file(CONFIGURE OUTPUT ${folder}/kernels.S CONTENT "${assembly}" @ONLY)
  set_source_files_properties(${folder}/kernels.S PROPERTIES OBJECT_DEPENDS "${modules}")
  target_sources(${target} PRIVATE ${folder}/kernels.S)
endfunction()
