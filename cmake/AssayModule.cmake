# SPDX-License-Identifier: Apache-2.0
# assay_module(NAME [NUMERIC] [STEERS] [JOINED] [JSON] DEPENDS other modules LIBS external libraries [TEST_LIBS ...])
# turns the current folder and its subfolders into the static library assay_NAME with its tests, benchmarks and fuzzers. NUMERIC: it does the
# arithmetic, so it is optimised even where the build is not (the sanitizer preset). STEERS: it only steers and prints. JOINED: its files are
# compiled several at a time, so that their unnamed namespaces are one: a helper that two files need belongs into a header. JSON: most of its files
# include the JSON library, so that is among its precompiled headers (with STEERS only).

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

find_package(fmt REQUIRED)
find_package(OpenMP REQUIRED)

add_library(assay_options INTERFACE)
target_include_directories(assay_options INTERFACE ${CMAKE_SOURCE_DIR})
# No contraction: the reference and the number formats must not depend on where the compiler fuses.
target_compile_options(assay_options INTERFACE -Wall -Wextra -Wno-missing-field-initializers -ffp-contract=off)
if(CMAKE_CXX_COMPILER_ID STREQUAL Clang)
  # No ABI of ours has vectors; some files silence what only GCC says; not every loop vectorises at -O1; std::stable_sort of
  # GCC 12 uses what its own library deprecates.
  target_compile_options(assay_options INTERFACE -Wno-psabi -Wno-unknown-warning-option -Wno-pass-failed -Wno-deprecated-declarations)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # GCC bug 105651: false -Wrestrict on std::string concatenation when optimising.
  target_compile_options(assay_options INTERFACE -Wno-restrict)
endif()
if(ASSAY_MARCH)
  add_library(assay_march INTERFACE)
  target_compile_options(assay_march INTERFACE -march=${ASSAY_MARCH})
  target_link_libraries(assay_options INTERFACE assay_march)
endif()
if(ASSAY_SANITIZE)
  target_compile_options(assay_options INTERFACE -fsanitize=address,undefined -fno-sanitize-recover=undefined
    -fno-omit-frame-pointer)
  target_link_options(assay_options INTERFACE -fsanitize=address,undefined)
  target_compile_definitions(assay_options INTERFACE ASSAY_SANITIZED)
  # GCC 12 warns falsely about its own AVX-512 intrinsics under the sanitizers; Release keeps both warnings.
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    target_compile_options(assay_options INTERFACE -Wno-uninitialized -Wno-maybe-uninitialized)
  endif()
endif()

if(ASSAY_FUZZERS)
  add_custom_target(fuzzers)  # all of them and nothing else
  # Coverage of the libraries themselves: without it a fuzzer sees only its own few lines.
  target_compile_options(assay_options INTERFACE -fsanitize=fuzzer-no-link)
endif()

# A compiler cache needs settings of its own to see through precompiled headers, so they are for builds without one.
if(CMAKE_CXX_COMPILER_LAUNCHER OR DEFINED ENV{CMAKE_CXX_COMPILER_LAUNCHER})
  option(ASSAY_PRECOMPILE "Precompile the headers that nearly every file of a module includes" OFF)
else()
  option(ASSAY_PRECOMPILE "Precompile the headers that nearly every file of a module includes" ON)
endif()
# Headers of the modules' own files: reading them takes a second a file, a third to half of what most files cost. The JSON library, three
# seconds to read, takes most of one even when it is precompiled: only where it is wanted. GCC 12 takes the level of optimisation of headers for that of
# the file, whatever its command says: those of modules that only steer, which are the ones that read JSON, are -O1 as these are.
set(ASSAY_PRECOMPILE_MODULES OFF)
if(ASSAY_PRECOMPILE AND CMAKE_CXX_COMPILER_ID STREQUAL GNU AND NOT ASSAY_SANITIZE AND NOT ASSAY_FUZZERS)
  set(ASSAY_PRECOMPILE_MODULES ON)
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/precompiled/modules.cpp CONTENT "\n")
  set(usual <algorithm> <cmath> <cstdint> <cstring> <functional> <map> <memory> <optional> <span> <string> <string_view> <unordered_map>
    <utility> <vector> <fmt/format.h>)
  find_package(nlohmann_json REQUIRED)
  foreach(kind usual json)
    add_library(assay_${kind}_headers STATIC EXCLUDE_FROM_ALL ${CMAKE_BINARY_DIR}/precompiled/modules.cpp)
    target_link_libraries(assay_${kind}_headers PRIVATE assay_options fmt::fmt OpenMP::OpenMP_CXX)
  endforeach()
  target_link_libraries(assay_json_headers PRIVATE nlohmann_json::nlohmann_json)
  target_compile_options(assay_json_headers PRIVATE $<$<CONFIG:Release>:-O1>)
  target_precompile_headers(assay_usual_headers PRIVATE ${usual})
  target_precompile_headers(assay_json_headers PRIVATE ${usual} <nlohmann/json.hpp>)
endif()
# GCC collects its garbage whenever its heap has doubled, from 128 MB on: a seventh of the time of what is compiled together, which ends soon after.
# Where nobody looks for an object in a compiler cache, whose keys are commands: everybody's would be compiled again.
if(ASSAY_PRECOMPILE_MODULES)
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:SHELL:--param ggc-min-heapsize=700000>")
endif()
# assay_standard_headers(NAME LIBS libraries OPTIONS of the compiler): the standard headers that kernels and emulators include, precompiled with these
# options where the modules' are: a quarter to two thirds of what those files cost. assay_takes_headers(TARGET NAME): its files take them. The options are to be
# the same but for macros that NAME does not have: with headers of another level of optimisation GCC 12 makes other code, or fails. Where options differ
# in more, it reads the headers again, and says so. A target of their own: among the objects of an object library CMake counts the headers it precompiles.
function(assay_standard_headers name)
  cmake_parse_arguments(arg "" "" "LIBS;OPTIONS" ${ARGN})
  if(NOT ASSAY_PRECOMPILE_MODULES)
    return()
  endif()
  add_library(${name} STATIC EXCLUDE_FROM_ALL ${CMAKE_BINARY_DIR}/precompiled/modules.cpp)
  target_link_libraries(${name} PRIVATE ${arg_LIBS})
  target_compile_options(${name} PRIVATE ${arg_OPTIONS})
  set_target_properties(${name} PROPERTIES CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
  target_precompile_headers(${name} PRIVATE <algorithm> <array> <bit> <climits> <cmath> <cstddef> <cstdint> <cstdio> <cstdlib> <cstring>
    <functional> <limits> <memory> <string> <type_traits> <utility> <vector>)
endfunction()
function(assay_takes_headers target name)
  if(ASSAY_PRECOMPILE_MODULES)
    target_precompile_headers(${target} REUSE_FROM ${name})
    # GCC bug 105651, as in assay_module.
    target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:-Wno-stringop-overflow;-Wno-array-bounds>")
  endif()
endfunction()
# Tests of a module in one program, compiled up to 18 files at a time (less than a GB of memory): half of the time where everything is compiled. With
# a compiler cache a program a file, of which a change compiles one.
option(ASSAY_JOIN_TESTS "Compile the tests of a module together" ${ASSAY_PRECOMPILE_MODULES})
# The main job needs neither: what AUTO does not find is left out, ON makes it an error.
foreach(part ASSAY_TESTS:GTest ASSAY_BENCHMARKS:benchmark)
  string(REGEX MATCH "(.*):(.*)" part ${part})
  set(switch ${CMAKE_MATCH_1})
  set(package ${CMAKE_MATCH_2})
  if(${switch} STREQUAL "AUTO")
    find_package(${package} QUIET)
    set(${switch} OFF)
    if(${package}_FOUND)
      set(${switch} ON)
    endif()
  elseif(${switch})
    find_package(${package} REQUIRED)
  endif()
endforeach()
if(ASSAY_TESTS)
  include(GoogleTest)
  # Tests are half of what there is to compile and need no speed: -O1 and headers compiled once halve their time.
  add_library(assay_test_options INTERFACE)
  if(NOT ASSAY_SANITIZE)
    target_compile_options(assay_test_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-O1>)
  endif()
  target_link_libraries(assay_test_options INTERFACE assay_options fmt::fmt GTest::gmock OpenMP::OpenMP_CXX)
  if(ASSAY_PRECOMPILE)
    file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/precompiled/tests.cpp CONTENT "int main() {}\n")
    add_executable(assay_test_headers EXCLUDE_FROM_ALL ${CMAKE_BINARY_DIR}/precompiled/tests.cpp)
    target_link_libraries(assay_test_headers PRIVATE assay_test_options)
    target_precompile_headers(assay_test_headers PRIVATE <gmock/gmock.h> <gtest/gtest.h> <algorithm> <cmath> <filesystem>
      <fstream> <functional> <map> <string> <vector> <fmt/format.h>)
  endif()
endif()

# assay_test(TARGET [JOINED] PREFIX name SOURCES files and objects LIBS libraries [PROPERTIES of each test])
# A GoogleTest program whose tests ctest knows one by one, as PREFIX.Suite.Name. JOINED: its files may be compiled together.
function(assay_test target)
  cmake_parse_arguments(arg "JOINED" "PREFIX" "SOURCES;LIBS;PROPERTIES" ${ARGN})
  add_executable(${target} ${arg_SOURCES})
  target_link_libraries(${target} PRIVATE ${arg_LIBS} assay_test_options GTest::gtest_main)
  target_compile_definitions(${target} PRIVATE ASSAY_SOURCE_DIR="${CMAKE_SOURCE_DIR}" ASSAY_BINARY_DIR="${CMAKE_BINARY_DIR}")
  if(ASSAY_PRECOMPILE)
    target_precompile_headers(${target} REUSE_FROM assay_test_headers)
  endif()
  if(arg_JOINED AND ASSAY_JOIN_TESTS)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 18)
  endif()
  gtest_discover_tests(${target} TEST_PREFIX "${arg_PREFIX}." DISCOVERY_TIMEOUT 60 PROPERTIES TIMEOUT 300 ${arg_PROPERTIES})
endfunction()

# assay_tests_need(MODULE name TESTS programs [LIBS libraries] [LOADS targets] [OPTIONS of the compiler])
# What single tests of a module need beyond it: LOADS are opened at run time, so nothing but this says that they are needed.
function(assay_tests_need)
  cmake_parse_arguments(arg "" "MODULE" "TESTS;LIBS;LOADS;OPTIONS" ${ARGN})
  if(ASSAY_JOIN_TESTS)
    set(arg_TESTS ${arg_MODULE}_tests)
  endif()
  foreach(test ${arg_TESTS})
    if(TARGET ${test})
      target_link_libraries(${test} PRIVATE ${arg_LIBS})
      target_compile_options(${test} PRIVATE ${arg_OPTIONS})
      if(arg_LOADS)
        add_dependencies(${test} ${arg_LOADS})
      endif()
    endif()
  endforeach()
endfunction()

function(assay_module name)
  cmake_parse_arguments(arg "NUMERIC;STEERS;JOINED;JSON" "" "DEPENDS;LIBS;TEST_LIBS" ${ARGN})
  file(GLOB_RECURSE all CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cpp)
  list(FILTER all EXCLUDE REGEX "/testing/")  # what tests load: named by hand
  set(sources ${all})
  list(FILTER sources EXCLUDE REGEX "(_test|_bench|_fuzz|_main)\\.cpp$")
  list(TRANSFORM arg_DEPENDS PREPEND assay_)
  if(sources)
    add_library(assay_${name} STATIC ${sources})
    # Its files are compiled several at a time: most of what each costs is headers and their templates.
    if(arg_JOINED)
      set(together 8)  # what a change compiles again
      if(ASSAY_PRECOMPILE_MODULES)
        set(together 24)
      endif()
      set_target_properties(assay_${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${together}
        # GCC takes a file among others for a header, in which the Impl of a class would hold what each reader has for itself.
        UNITY_BUILD_CODE_BEFORE_INCLUDE "#pragma GCC diagnostic ignored \"-Wsubobject-linkage\"")
    endif()
    target_link_libraries(assay_${name} PUBLIC assay_options fmt::fmt ${arg_DEPENDS} ${arg_LIBS})
    if(ASSAY_PRECOMPILE_MODULES)
      set(headers assay_usual_headers)
      if(arg_JSON AND arg_STEERS)
        set(headers assay_json_headers)
      elseif(arg_JSON OR arg_STEERS)
        message(FATAL_ERROR "${name}: of precompiled headers there are those of STEERS JSON and those of neither")
      endif()
      target_precompile_headers(assay_${name} REUSE_FROM ${headers})
      # As the headers were compiled, also where nothing is parallel. GCC bug 105651 has more faces with headers that were precompiled.
      target_compile_options(assay_${name} PRIVATE ${OpenMP_CXX_FLAGS} -Wno-stringop-overflow -Wno-array-bounds)
    endif()
    # A switch over an enumeration names every enumerator or says "default": one that is new is missed nowhere.
    target_compile_options(assay_${name} PRIVATE -Werror=switch)
    if(arg_NUMERIC AND ASSAY_SANITIZE)
      target_compile_options(assay_${name} PRIVATE -O1)
    endif()
    # What only steers and prints waits for others: -O1 compiles in two thirds of the time.
    if(arg_STEERS AND NOT ASSAY_SANITIZE)
      target_compile_options(assay_${name} PRIVATE $<$<CONFIG:Release>:-O1>)
    endif()
  else()
    add_library(assay_${name} INTERFACE)
    target_link_libraries(assay_${name} INTERFACE assay_options fmt::fmt ${arg_DEPENDS} ${arg_LIBS})
  endif()

  set(tests ${all})
  list(FILTER tests INCLUDE REGEX "_test\\.cpp$")
  if(ASSAY_TESTS AND tests AND ASSAY_JOIN_TESTS)
    assay_test(${name}_tests JOINED PREFIX ${name} SOURCES ${tests} LIBS assay_${name} ${arg_TEST_LIBS})
  elseif(ASSAY_TESTS)
    foreach(test ${tests})
      get_filename_component(target ${test} NAME_WE)
      assay_test(${target} PREFIX ${name} SOURCES ${test} LIBS assay_${name} ${arg_TEST_LIBS})
    endforeach()
  endif()

  set(benches ${all})
  list(FILTER benches INCLUDE REGEX "_bench\\.cpp$")
  if(ASSAY_BENCHMARKS)
    foreach(bench ${benches})
      get_filename_component(target ${bench} NAME_WE)
      add_executable(${target} ${bench})
      target_link_libraries(${target} PRIVATE assay_${name} ${arg_TEST_LIBS} benchmark::benchmark_main)
      target_compile_definitions(${target} PRIVATE ASSAY_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
    endforeach()
  endif()

  set(fuzzers ${all})
  list(FILTER fuzzers INCLUDE REGEX "_fuzz\\.cpp$")
  if(ASSAY_FUZZERS)
    foreach(fuzz ${fuzzers})
      get_filename_component(target ${fuzz} NAME_WE)
      add_executable(${target} ${fuzz})
      target_link_libraries(${target} PRIVATE assay_${name} ${arg_TEST_LIBS})
      target_compile_options(${target} PRIVATE -fsanitize=fuzzer)
      target_link_options(${target} PRIVATE -fsanitize=fuzzer)
      add_dependencies(fuzzers ${target})
    endforeach()
  endif()
endfunction()
