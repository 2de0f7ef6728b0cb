# cuda.cmake: compiles the kernels of shaders/cuda_hip for NVIDIA's generations and embeds them.

# One image per IMAGE line of kernels.def, as eb_image_<stem>: machine code for each generation, and
# code that drivers compile for later ones.
function(ebro_cuda_images target)
  set(shaders ${CMAKE_SOURCE_DIR}/shaders)
  set(listing ${shaders}/cuda_hip/kernels.def)
  set(folder ${CMAKE_BINARY_DIR}/cuda)
  file(MAKE_DIRECTORY ${folder})
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${listing})
  file(STRINGS ${listing} lines REGEX "^IMAGE\\(")
  set(generations "")
  foreach(generation IN LISTS EBRO_CUDA_ARCHS)
    string(REGEX REPLACE "[a-z]+$" "" number ${generation})
    list(APPEND generations -gencode arch=compute_${generation},code=sm_${generation})
  endforeach()
  list(APPEND generations -gencode arch=compute_80,code=compute_80)
  set(assembly "/* The kernels of shaders/cuda_hip. Written by the build. */\n.section .rodata\n")
  set(images "")
  foreach(line IN LISTS lines)
    string(REGEX REPLACE "^IMAGE\\(([a-z0-9_]+)\\).*" "\\1" stem ${line})
    set(image ${folder}/${stem}.fatbin)
    add_custom_command(
      OUTPUT ${image}
      COMMAND ${EBRO_NVCC} -std=c++17 -O3 -fatbin --compress-mode=size ${generations} -I${shaders} -I${shaders}/cuda_hip
              -Wno-deprecated-gpu-targets -MD -MF ${image}.d -o ${image} ${shaders}/cuda_hip/${stem}.cu
      DEPENDS ${shaders}/cuda_hip/${stem}.cu ${listing}
      DEPFILE ${image}.d
      COMMENT "CUDA kernels of ${stem}.cu"
      VERBATIM)
    list(APPEND images ${image})
    string(APPEND assembly
      ".balign 16\n.hidden eb_image_${stem}\n.globl eb_image_${stem}\neb_image_${stem}:\n"
      ".incbin \"${image}\"\n")
  endforeach()
  string(APPEND assembly ".section .note.GNU-stack,\"\",%progbits\n")
  file(CONFIGURE OUTPUT ${folder}/images.S CONTENT "${assembly}" @ONLY)
  set_source_files_properties(${folder}/images.S PROPERTIES OBJECT_DEPENDS "${images}")
  target_sources(${target} PRIVATE ${folder}/images.S)
endfunction()
