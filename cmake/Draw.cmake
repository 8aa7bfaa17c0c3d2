# SPDX-License-Identifier: Apache-2.0
# What of the slow work of CI this build has (scripts/checks/draw.py): all, or what the hash of the tree draws (preset drawn).
set(ASSAY_DRAW "all" CACHE STRING "Slow work: all, tree (what the hash of the checked-out tree draws of it) or the hash of a tree")
set(names all)
set(modules "")
if(NOT ASSAY_DRAW STREQUAL "all")
  find_program(ASSAY_PYTHON NAMES python3 PATHS /usr/bin NO_DEFAULT_PATH)
  find_program(ASSAY_PYTHON NAMES python3 REQUIRED)
  execute_process(COMMAND ${ASSAY_PYTHON} -B ${CMAKE_SOURCE_DIR}/scripts/checks/draw.py --groups ${ASSAY_DRAW} OUTPUT_VARIABLE names OUTPUT_STRIP_TRAILING_WHITESPACE
    COMMAND_ERROR_IS_FATAL ANY)
  file(WRITE ${CMAKE_BINARY_DIR}/draw.txt "${names}\n")
  execute_process(COMMAND ${ASSAY_PYTHON} -B ${CMAKE_SOURCE_DIR}/scripts/checks/draw.py --modules ${CMAKE_BINARY_DIR}/draw.txt OUTPUT_VARIABLE modules
    OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  message(STATUS "draw: ${names}")
else()
  file(REMOVE ${CMAKE_BINARY_DIR}/draw.txt)
endif()
string(REPLACE " " ";" ASSAY_DRAWN "${names}")
string(REPLACE " " ";" ASSAY_MODULES_LEFT_OUT "${modules}")  # their tests: GROUP=MODULE

# assay_is_drawn(RESULT GROUP): whether this build has what belongs to the group.
function(assay_is_drawn result group)
  set(${result} OFF PARENT_SCOPE)
  if(ASSAY_DRAW STREQUAL "all" OR group IN_LIST ASSAY_DRAWN)
    set(${result} ON PARENT_SCOPE)
  endif()
endfunction()

# assay_keep_drawn(LIST): without the libraries of emulated device code that this build does not have.
function(assay_keep_drawn list)
  foreach(family lanes32=assay_emu32 lanes64=assay_emu64 sm90=assay_emu_sm90)
    string(REGEX MATCH "(.*)=(.*)" family ${family})
    assay_is_drawn(here ${CMAKE_MATCH_1})
    if(NOT here)
      list(FILTER ${list} EXCLUDE REGEX "^${CMAKE_MATCH_2}(_check)?$")
    endif()
  endforeach()
  set(${list} ${${list}} PARENT_SCOPE)
endfunction()

# assay_left_out(GROUP NAMES...): tests, of programs that this build does not have, by which the last lines of scripts/test know of them.
function(assay_left_out group)
  foreach(name ${ARGN})
    add_test(NAME ${group}.program.${name} COMMAND ${CMAKE_COMMAND} -E false)
  endforeach()
endfunction()

# assay_group_left_out(RESULT MODULE): the group of a module whose tests this build does not have, or nothing.
function(assay_group_left_out result module)
  set(found ${ASSAY_MODULES_LEFT_OUT})
  list(FILTER found INCLUDE REGEX "=${module}$")
  string(REPLACE "=${module}" "" found "${found}")
  set(${result} "${found}" PARENT_SCOPE)
endfunction()
