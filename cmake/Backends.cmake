# SPDX-License-Identifier: Apache-2.0
# Which backends this build has, and why it lacks the others. A backend that cannot be built never stops the build: before
# CMake enables its language, a project of one kernel (cmake/probe) is configured, compiled and linked as a shared library with the
# same compiler and architectures, and what fails there is the reason it is left out. ASSAY_<NAME>=ON makes that an error.
#
#   assay_backend(NAME [FOR architectures])     notes that NAME is built
#   assay_backend(NAME WITHOUT reason)          notes that it is not
#   assay_leave_out(NAME reason)                the same, an error with ASSAY_<NAME>=ON
#   assay_probe(LANGUAGE ARCHITECTURES list REASON variable [OPTIONS compiler and linker options] [SET variables handed on])
#                                               empty REASON: enable_language(LANGUAGE) and a build will do
#   assay_say_backends()                        one line for all of them

function(assay_backend name)
  cmake_parse_arguments(arg "" "WITHOUT" "FOR" ${ARGN})
  string(REPLACE ";" "," reason "${arg_WITHOUT}")
  if(reason)
    set_property(GLOBAL APPEND PROPERTY ASSAY_BACKENDS "${name} no (${reason})")
  else()
    list(JOIN arg_FOR " " for)
    if(for)
      set(for " (${for})")
    endif()
    set_property(GLOBAL APPEND PROPERTY ASSAY_BACKENDS "${name} yes${for}")
  endif()
endfunction()

function(assay_leave_out name reason)
  string(TOUPPER ASSAY_${name} switch)
  if(${switch} STREQUAL "ON")
    message(FATAL_ERROR "${switch}=ON, but libassay_${name}.so cannot be built: ${reason}")
  endif()
  assay_backend(${name} WITHOUT "${reason}")
endfunction()

function(assay_say_backends)
  get_property(backends GLOBAL PROPERTY ASSAY_BACKENDS)
  list(JOIN backends ", " backends)
  message(STATUS "backends: ${backends}")
endfunction()

function(assay_probe language)
  cmake_parse_arguments(arg "" "REASON" "ARCHITECTURES;OPTIONS;SET" ${ARGN})
  set(folder ${CMAKE_BINARY_DIR}/probe/${language})
  # As a script, because lists and folders with spaces do not survive a command line.
  set(settings "set(PROBE_LANGUAGE ${language} CACHE STRING \"\")\nset(PROBE_OPTIONS \"${arg_OPTIONS}\" CACHE STRING \"\")\n\
set(CMAKE_${language}_ARCHITECTURES \"${arg_ARCHITECTURES}\" CACHE STRING \"\")\n")
  foreach(variable CMAKE_BUILD_TYPE CMAKE_MAKE_PROGRAM CMAKE_TOOLCHAIN_FILE CMAKE_PREFIX_PATH CMAKE_${language}_COMPILER CMAKE_${language}_FLAGS
      CMAKE_${language}_HOST_COMPILER CUDAToolkit_ROOT ${arg_SET})
    if(NOT "${${variable}}" STREQUAL "")
      string(APPEND settings "set(${variable} [==[${${variable}}]==] CACHE STRING \"\")\n")
    endif()
  endforeach()
  set(${arg_REASON} "" PARENT_SCOPE)
  string(MD5 key "${settings}")
  if("${ASSAY_PROBED_${language}}" STREQUAL key)
    return()  # it was possible with the same settings
  endif()

  message(STATUS "Trying ${language}: a kernel compiled and linked as a library")
  file(REMOVE_RECURSE ${folder})
  file(WRITE ${folder}/settings.cmake "${settings}")
  execute_process(COMMAND ${CMAKE_COMMAND} -C ${folder}/settings.cmake -G ${CMAKE_GENERATOR} -S ${CMAKE_SOURCE_DIR}/cmake/probe -B ${folder}
    OUTPUT_VARIABLE text ERROR_VARIABLE text RESULT_VARIABLE status)
  if(status EQUAL 0)
    execute_process(COMMAND ${CMAKE_COMMAND} --build ${folder} --verbose OUTPUT_VARIABLE built ERROR_VARIABLE built RESULT_VARIABLE status)
    string(APPEND text "${built}")
  endif()
  file(WRITE ${folder}/log.txt "${text}")
  if(status EQUAL 0)
    set(ASSAY_PROBED_${language} ${key} CACHE INTERNAL "settings with which ${language} was seen to work")
    # What CMake found out about this compiler while it was broken would be believed for ever.
    file(REMOVE ${CMAKE_BINARY_DIR}/CMakeFiles/${CMAKE_VERSION}/CMake${language}Compiler.cmake)
    return()
  endif()
  unset(ASSAY_PROBED_${language} CACHE)
  # The compiler's own words before CMake's.
  string(REPLACE ";" "," text "${text}")
  string(REGEX MATCH "[^\n]*([Ff]atal|error:|not found|No such|cannot find|undefined reference|[Uu]nsupported)[^\n]*" line "${text}")
  if(NOT line)
    string(REGEX MATCH "CMake Error[^\n]*\n+((  [^\n]+\n)+)" line "${text}")
    string(REGEX REPLACE "[ \n]+" " " line "${CMAKE_MATCH_1}")
  endif()
  string(STRIP "${line}" line)
  if(NOT line)
    set(line "exit ${status}")
  endif()
  set(${arg_REASON} "a small kernel cannot be built: ${line} [all of it: ${folder}/log.txt]" PARENT_SCOPE)
endfunction()
