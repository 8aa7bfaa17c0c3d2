# SPDX-License-Identifier: Apache-2.0
# Sources that several kernel libraries are made of, listed here once. Paths are absolute: the libraries that
# compile them lie in different folders.
set(ASSAY_KERNELS ${CMAKE_SOURCE_DIR}/kernels)

# What every backend reads alike.
set(ASSAY_COMMON_SOURCES ${ASSAY_KERNELS}/common/operands.cpp ${ASSAY_KERNELS}/common/block_operands.cpp
  ${ASSAY_KERNELS}/common/instances.cpp)

# Device code of the portable kernels (CUDA, HIP or plain C++ for the emulator) and their entries of the C table.
file(GLOB ASSAY_PORTABLE_DEVICE_SOURCES CONFIGURE_DEPENDS ${ASSAY_KERNELS}/portable/*.cu)
set(ASSAY_PORTABLE_ENTRY_SOURCES ${ASSAY_KERNELS}/portable/kernels.cpp ${ASSAY_KERNELS}/portable/matrix_kernels.cpp
  ${ASSAY_KERNELS}/portable/blocks.cpp)
set(ASSAY_PORTABLE_LIST_SOURCE ${ASSAY_KERNELS}/portable/portable.cpp)

# Host side of a GPU backend: devices, memory, measured limits, timing, graphs.
set(ASSAY_DEVICE_SOURCES ${ASSAY_KERNELS}/device/backend.cpp ${ASSAY_KERNELS}/device/graphs.cpp ${ASSAY_KERNELS}/device/limits.cpp
  ${ASSAY_KERNELS}/device/timing.cpp)
