# SPDX-License-Identifier: Apache-2.0
# Sources that several kernel libraries are made of, listed here once. Paths are absolute: the libraries that
# compile them lie in different folders.
set(ASSAY_KERNELS ${CMAKE_SOURCE_DIR}/kernels)

# What every backend reads alike.
set(ASSAY_COMMON_SOURCES ${ASSAY_KERNELS}/common/operands.cpp ${ASSAY_KERNELS}/common/data_op_operands.cpp
  ${ASSAY_KERNELS}/common/instances.cpp ${ASSAY_KERNELS}/common/metadata.cpp ${ASSAY_KERNELS}/common/persistent.cpp)

# Kernels made of kernels, on any device.
set(ASSAY_STEP_SOURCES ${ASSAY_KERNELS}/common/pipelines.cpp ${ASSAY_KERNELS}/common/stages.cpp ${ASSAY_KERNELS}/common/stage_arithmetic.cpp
  ${ASSAY_KERNELS}/common/step_stages.cpp ${ASSAY_KERNELS}/common/unified_step.cpp
  ${ASSAY_KERNELS}/common/aiter_fa.cpp ${ASSAY_KERNELS}/common/sglang_fa.cpp
  ${ASSAY_KERNELS}/common/chunked_context.cpp ${ASSAY_KERNELS}/common/mla_prefill.cpp
  ${ASSAY_KERNELS}/common/aiter_mla.cpp ${ASSAY_KERNELS}/common/aiter_mla_prefill.cpp ${ASSAY_KERNELS}/common/join_stages.cpp ${ASSAY_KERNELS}/common/cast_stages.cpp
  ${ASSAY_KERNELS}/common/scheduled_stages.cpp ${ASSAY_KERNELS}/common/ixformer_fa.cpp
  ${ASSAY_KERNELS}/common/ixformer_dcp.cpp ${ASSAY_KERNELS}/common/group.cpp)

# Neither depends on the device or on its compiler: compiled once for the libraries of all GPUs and of the emulator.
set(gpu_host_options -Wall -Wextra -Wno-missing-field-initializers -ffp-contract=off)
assay_standard_headers(assay_gpu_headers OPTIONS ${gpu_host_options})
foreach(part common steps)
  set(sources ${ASSAY_COMMON_SOURCES})
  if(part STREQUAL "steps")
    set(sources ${ASSAY_STEP_SOURCES})
  endif()
  add_library(assay_gpu_${part} OBJECT EXCLUDE_FROM_ALL ${sources})
  target_include_directories(assay_gpu_${part} PRIVATE ${CMAKE_SOURCE_DIR})
  target_compile_options(assay_gpu_${part} PRIVATE ${gpu_host_options})
  assay_takes_headers(assay_gpu_${part} assay_gpu_headers)
  set_target_properties(assay_gpu_${part} PROPERTIES POSITION_INDEPENDENT_CODE ON CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
endforeach()
set(ASSAY_GPU_COMMON_OBJECTS $<TARGET_OBJECTS:assay_gpu_common> $<TARGET_OBJECTS:assay_gpu_steps>)

# Device code of the portable kernels (CUDA, HIP or plain C++ for the emulator) and their entries of the C table.
file(GLOB ASSAY_PORTABLE_DEVICE_SOURCES CONFIGURE_DEPENDS ${ASSAY_KERNELS}/portable/*.cu)
file(GLOB ASSAY_PORTABLE_ENTRY_SOURCES CONFIGURE_DEPENDS ${ASSAY_KERNELS}/portable/*_entry.cpp)
list(APPEND ASSAY_PORTABLE_ENTRY_SOURCES ${ASSAY_KERNELS}/portable/entry.cpp ${ASSAY_KERNELS}/portable/kernels.cpp
  ${ASSAY_KERNELS}/portable/steps.cpp)
set(ASSAY_PORTABLE_LIST_SOURCE ${ASSAY_KERNELS}/portable/portable.cpp)
# What the libraries of GPUs have of them. Of a sample the hosts' other files are compiled too and part of no library: what they launch is not there.
set(ASSAY_GPU_DEVICE_SOURCES ${ASSAY_PORTABLE_DEVICE_SOURCES})
set(ASSAY_GPU_ENTRY_SOURCES ${ASSAY_PORTABLE_LIST_SOURCE} ${ASSAY_PORTABLE_ENTRY_SOURCES})
set(ASSAY_GPU_UNLINKED_SOURCES "")
if(ASSAY_GPU_SAMPLE)
  set(ASSAY_GPU_DEVICE_SOURCES ${ASSAY_KERNELS}/portable/simple.cu)
  set(ASSAY_GPU_ENTRY_SOURCES ${ASSAY_KERNELS}/portable/sample.cpp ${ASSAY_KERNELS}/portable/simple_entry.cpp ${ASSAY_KERNELS}/portable/entry.cpp)
  set(ASSAY_GPU_UNLINKED_SOURCES ${ASSAY_PORTABLE_ENTRY_SOURCES})
  list(REMOVE_ITEM ASSAY_GPU_UNLINKED_SOURCES ${ASSAY_GPU_ENTRY_SOURCES})
endif()

# Host side of a GPU backend: devices, memory, measured limits, timing, graphs; of which the emulator takes the statuses.
set(ASSAY_STATUS_SOURCES ${ASSAY_KERNELS}/device/status.cpp)
set(ASSAY_DEVICE_SOURCES ${ASSAY_STATUS_SOURCES} ${ASSAY_KERNELS}/device/backend.cpp ${ASSAY_KERNELS}/device/graphs.cpp
  ${ASSAY_KERNELS}/device/limits.cpp ${ASSAY_KERNELS}/device/timing.cpp ${ASSAY_KERNELS}/device/disturb.cpp)
# What connects ranks on GPUs: NCCL or RCCL, at run time.
set(ASSAY_GROUP_SOURCES ${ASSAY_KERNELS}/device/group.cpp)
# ... and what small messages go through between NVIDIA's.
set(ASSAY_PEER_SOURCES ${ASSAY_KERNELS}/device/peers.cpp ${ASSAY_KERNELS}/device/peer_kernels.cu)
set(ASSAY_LIMIT_KERNELS ${ASSAY_KERNELS}/device/limit_kernels.cu ${ASSAY_KERNELS}/device/disturb_kernels.cu)

# The public headers as they are included from outside: <assay/...>.
set(ASSAY_PUBLIC_HEADERS harness/abi/assay_kernel.h harness/abi/assay_problem.h harness/abi/assay_arithmetic.h
  harness/abi/assay_fault.h harness/abi/assay_disturb.h harness/abi/assay_series.h harness/abi/assay_group.h kernels/device/assay_kit.hpp kernels/device/assay_delays.hpp)
set(ASSAY_PUBLIC_INCLUDE ${CMAKE_BINARY_DIR}/include)
file(MAKE_DIRECTORY ${ASSAY_PUBLIC_INCLUDE}/assay)
foreach(header ${ASSAY_PUBLIC_HEADERS})
  get_filename_component(name ${header} NAME)
  file(CREATE_LINK ${CMAKE_SOURCE_DIR}/${header} ${ASSAY_PUBLIC_INCLUDE}/assay/${name} SYMBOLIC)
endforeach()
include(GNUInstallDirs)
add_library(assay_headers INTERFACE)
set_target_properties(assay_headers PROPERTIES EXPORT_NAME headers)
target_compile_features(assay_headers INTERFACE cxx_std_17)
target_include_directories(assay_headers INTERFACE $<BUILD_INTERFACE:${ASSAY_PUBLIC_INCLUDE}>
  $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
add_library(assay::headers ALIAS assay_headers)
install(FILES ${ASSAY_PUBLIC_HEADERS} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/assay COMPONENT kit)
install(TARGETS assay_headers EXPORT assay)

# assay_kit(NAME sources...): the static library of one kind of device for authors of kernels, as assay::NAME.
function(assay_kit name)
  add_library(assay_${name} STATIC ${ARGN})
  set_target_properties(assay_${name} PROPERTIES EXPORT_NAME ${name} POSITION_INDEPENDENT_CODE ON CXX_VISIBILITY_PRESET hidden
    CUDA_VISIBILITY_PRESET hidden HIP_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON
    ARCHIVE_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
  target_include_directories(assay_${name} PRIVATE ${CMAKE_SOURCE_DIR})
  target_compile_options(assay_${name} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wno-missing-field-initializers>)
  target_link_libraries(assay_${name} PUBLIC assay_headers)
  add_library(assay::${name} ALIAS assay_${name})
  # An export of its own: who has no CUDA can still use the others.
  install(TARGETS assay_${name} EXPORT assay_${name} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT kit)
  install(EXPORT assay_${name} NAMESPACE assay:: FILE assay_${name}.cmake DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/assay COMPONENT kit)
endfunction()

# The kernels for sm_90a and their entries; part of libassay_cuda.so.
set(ASSAY_SM90_SOURCES ${ASSAY_KERNELS}/sm90/sm90.cpp ${ASSAY_KERNELS}/sm90/decode.cpp ${ASSAY_KERNELS}/sm90/decode_16bit.cu ${ASSAY_KERNELS}/sm90/decode_fp8.cu
  ${ASSAY_KERNELS}/sm90/decode_int8.cu ${ASSAY_KERNELS}/sm90/decode_packed.cu ${ASSAY_KERNELS}/sm90/decode_one.cu
  ${ASSAY_KERNELS}/sm90/mla.cpp ${ASSAY_KERNELS}/sm90/mla_merge.cu ${ASSAY_KERNELS}/sm90/mla_turned.cu ${ASSAY_KERNELS}/sm90/mla_held.cu ${ASSAY_KERNELS}/sm90/mla_widened.cu
  ${ASSAY_KERNELS}/sm90/prefill.cpp ${ASSAY_KERNELS}/sm90/prefill_64.cu ${ASSAY_KERNELS}/sm90/prefill_128.cu ${ASSAY_KERNELS}/sm90/prefill_fp8.cu ${ASSAY_KERNELS}/sm90/prefill_int8.cu ${ASSAY_KERNELS}/sm90/decode_keys.cu
  ${ASSAY_KERNELS}/sm90/prefill_192.cu ${ASSAY_KERNELS}/sm90/prefill_256.cu ${ASSAY_KERNELS}/sm90/tensor_map.cpp)
# Kernels that choose among those of a library.
set(ASSAY_AUTO_SOURCES ${ASSAY_KERNELS}/common/chooser.cpp ${ASSAY_KERNELS}/cuda/auto.cpp)

# assay_planted(NAME FOLDER|* options...): copies of kernels with the faults of kernels/emulator/faults/edits in them (plant.py), made by the target
# assay_NAME in the folder assay_NAME_folder; assay_NAME_files lists them. Include that folder first.
function(assay_planted name folder)
  find_program(ASSAY_PYTHON NAMES python3 PATHS /usr/bin NO_DEFAULT_PATH)
  set(faults ${ASSAY_KERNELS}/emulator/faults)
  set(to ${CMAKE_CURRENT_BINARY_DIR}/${name})
  file(GLOB edits CONFIGURE_DEPENDS ${faults}/edits/${folder}/*.edit)
  set(files ${to}/kernels/emulator/faults/fault_list.hpp)
  set(sources "")
  foreach(edit ${edits})
    file(STRINGS ${edit} wanted REGEX "^race ")
    if(wanted OR NOT "--races" IN_LIST ARGN)
      get_filename_component(file ${edit} NAME_WLE)
      get_filename_component(in ${edit} DIRECTORY)
      get_filename_component(in ${in} NAME)
      list(APPEND files ${to}/kernels/${in}/${file})
      list(APPEND sources ${ASSAY_KERNELS}/${in}/${file})
    endif()
  endforeach()
  add_custom_command(OUTPUT ${files} COMMAND ${ASSAY_PYTHON} ${faults}/plant.py ${ASSAY_KERNELS} ${to} --folder ${folder} ${ARGN}
    DEPENDS ${faults}/plant.py ${edits} ${sources} COMMENT "Planting faults in copies of kernels" VERBATIM)
  add_custom_target(assay_${name} DEPENDS ${files})
  set(assay_${name}_folder ${to} PARENT_SCOPE)
  set(assay_${name}_files ${files} PARENT_SCOPE)
endfunction()
