# SPDX-License-Identifier: Apache-2.0
# A ROCm root for CMake's HIP language on a Debian machine that has HIP's parts in distribution packages instead
# of a ROCm tree: clang, lld, libamdhip64-dev, rocm-device-libs. Everything is linked into
# BUILD/debian-rocm; nothing is installed. Two things Debian 12 lacks are written here: the package file
# through which CMake finds the runtime, and the constant that tells the device library which
# instruction set it runs on for targets newer than ROCm 5.2.
#
#   assay_debian_rocm(REASON)   sets CMAKE_HIP_COMPILER and CMAKE_HIP_COMPILER_ROCM_ROOT for enable_language(HIP), or
#                               REASON to the packages that are missing
macro(assay_debian_rocm reason)
  find_program(ASSAY_HIP_CLANG NAMES clang++-22 clang++-21 clang++-20 clang++-19 DOC "clang that knows gfx942")
  find_library(ASSAY_HIP_RUNTIME amdhip64 DOC "HIP runtime library")
  find_path(ASSAY_HIP_INCLUDE hip/hip_runtime.h DOC "folder of the HIP headers")
  find_path(ASSAY_HIP_BITCODE ockl.bc PATHS /usr/lib/${CMAKE_CXX_LIBRARY_ARCHITECTURE}/amdgcn/bitcode /usr/lib/x86_64-linux-gnu/amdgcn/bitcode
    DOC "folder of AMD's device libraries")
  set(_missing)
  set(_lld)
  set(_bundler)
  if(ASSAY_HIP_CLANG)
    # The linker and the bundler of device code must be those of the same LLVM, which clang looks for beside itself.
    get_filename_component(_bin ${ASSAY_HIP_CLANG} REALPATH)
    get_filename_component(_bin ${_bin} DIRECTORY)
    find_program(_lld NAMES lld PATHS ${_bin} NO_DEFAULT_PATH NO_CACHE)
    find_program(_bundler NAMES clang-offload-bundler PATHS ${_bin} NO_DEFAULT_PATH NO_CACHE)
  endif()
  foreach(part ASSAY_HIP_CLANG:clang-19 _lld:lld-19 _bundler:clang-tools-19 ASSAY_HIP_RUNTIME:libamdhip64-dev
      ASSAY_HIP_INCLUDE:libamdhip64-dev ASSAY_HIP_BITCODE:rocm-device-libs)
    string(REPLACE ":" ";" part ${part})
    list(GET part 0 _variable)
    list(GET part 1 _package)
    if(NOT ${_variable})
      list(APPEND _missing ${_package})
    endif()
  endforeach()
  list(REMOVE_DUPLICATES _missing)
  if(_missing)
    list(JOIN _missing " " _missing)
    set(${reason} "no ROCm installation, and of the packages that replace it on Debian these are missing: ${_missing}")
  else()
    set(CMAKE_HIP_COMPILER ${ASSAY_HIP_CLANG} CACHE FILEPATH "HIP compiler")
    set(CMAKE_HIP_COMPILER_ROCM_ROOT ${CMAKE_BINARY_DIR}/debian-rocm)
    _assay_write_debian_rocm("${CMAKE_HIP_COMPILER_ROCM_ROOT}" ${reason})
  endif()
endmacro()

function(_assay_write_debian_rocm root reason)
  file(MAKE_DIRECTORY ${root}/include ${root}/lib/cmake/hip-lang ${root}/share/hip ${root}/amdgcn/bitcode)
  file(CREATE_LINK ${ASSAY_HIP_INCLUDE}/hip ${root}/include/hip SYMBOLIC)
  file(CREATE_LINK ${ASSAY_HIP_RUNTIME} ${root}/lib/libamdhip64.so SYMBOLIC)
  # clang reads the version of HIP from here.
  get_filename_component(prefix ${ASSAY_HIP_INCLUDE} DIRECTORY)
  if(EXISTS ${prefix}/share/hip/version)
    file(CREATE_LINK ${prefix}/share/hip/version ${root}/share/hip/version SYMBOLIC)
  endif()
  file(GLOB bitcode "${ASSAY_HIP_BITCODE}/*.bc")
  foreach(file ${bitcode})
    get_filename_component(name ${file} NAME)
    file(CREATE_LINK ${file} ${root}/amdgcn/bitcode/${name} SYMBOLIC)
  endforeach()
  foreach(arch ${ASSAY_HIP_ARCHITECTURES})
    string(REGEX REPLACE "^gfx" "" digits ${arch})
    set(file ${root}/amdgcn/bitcode/oclc_isa_version_${digits}.bc)
    if(EXISTS ${file} OR NOT digits MATCHES "^[0-9]+[0-9a-f][0-9a-f]$")
      continue()
    endif()
    # gfxMNS: major version, minor digit and stepping digit in hexadecimal, as ROCm's device libraries number them.
    string(REGEX MATCH "^([0-9]+)([0-9a-f])([0-9a-f])$" unused ${digits})
    math(EXPR number "${CMAKE_MATCH_1} * 1000 + 0x${CMAKE_MATCH_2} * 100 + 0x${CMAKE_MATCH_3}")
    file(WRITE ${root}/isa_${digits}.ll "target triple = \"amdgcn-amd-amdhsa\"\n"
      "@__oclc_ISA_version = linkonce_odr protected local_unnamed_addr addrspace(4) constant i32 ${number}, align 4\n")
    execute_process(COMMAND ${ASSAY_HIP_CLANG} -x ir --target=amdgcn-amd-amdhsa -nogpulib -emit-llvm -c ${root}/isa_${digits}.ll -o ${file}
      RESULT_VARIABLE status ERROR_VARIABLE error)
    if(NOT status EQUAL 0)
      file(REMOVE ${file})
      set(${reason} "${ASSAY_HIP_CLANG} cannot write device code: ${error}" PARENT_SCOPE)
      return()
    endif()
  endforeach()
  file(WRITE ${root}/lib/cmake/hip-lang/hip-lang-config.cmake "\
if(NOT TARGET hip-lang::device)
  add_library(hip-lang::device INTERFACE IMPORTED GLOBAL)
  target_link_libraries(hip-lang::device INTERFACE ${ASSAY_HIP_RUNTIME})
  target_link_options(hip-lang::device INTERFACE \$<\$<LINK_LANGUAGE:HIP>:--hip-link>)
endif()
set(_CMAKE_HIP_DEVICE_RUNTIME_TARGET hip-lang::device)
")
endfunction()
