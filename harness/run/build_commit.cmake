# Writes OUT, a header with the commit of SOURCE and whether files differ from it, when either changed: a build folder outlives many commits.
# Run at every build: cmake -DGIT=... -DSOURCE=... -DOUT=... -P build_commit.cmake
cmake_minimum_required(VERSION 3.25)
set(commit "")
set(dirty 0)
if(GIT)
  execute_process(COMMAND ${GIT} -C ${SOURCE} rev-parse HEAD OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  execute_process(COMMAND ${GIT} -C ${SOURCE} status --porcelain OUTPUT_VARIABLE changes OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(changes)
    set(dirty 1)
  endif()
endif()
file(CONFIGURE OUTPUT ${OUT} CONTENT "#define ASSAY_BUILD_COMMIT \"@commit@\"\n#define ASSAY_BUILD_DIRTY @dirty@\n" @ONLY)
