# tempera_build_id(TARGET): a library with the function of base/build_id.h. The number is a hash of the program's sources and of
# torch's version: the same wherever and whenever they are built, another after any change.
#
# The file is also the script that makes the source: cmake -D LIST=... -D OUT=... -P tempera_build_id.cmake
if(CMAKE_SCRIPT_MODE_FILE)
  file(STRINGS ${LIST} lines)
  list(POP_FRONT lines root all)
  foreach(name ${lines})
    file(SHA256 ${root}/${name} hash)
    string(APPEND all "\n${name} ${hash}")
  endforeach()
  string(SHA256 hash "${all}")
  string(SUBSTRING ${hash} 0 12 hash)
  # Leaves a file alone that would stay the same, so that nothing is linked again.
  file(CONFIGURE OUTPUT ${OUT} CONTENT [[
#include "tempera/base/build_id.h"

namespace tempera {

const char* build_id() { return "@hash@"; }

}  // namespace tempera
]] @ONLY)
  return()
endif()

function(tempera_build_id target)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS RELATIVE ${CMAKE_SOURCE_DIR} ${CMAKE_SOURCE_DIR}/src/tempera/*.cc
    ${CMAKE_SOURCE_DIR}/src/tempera/*.h ${CMAKE_SOURCE_DIR}/src/tempera/*.cu ${CMAKE_SOURCE_DIR}/src/tempera/*.cuh)
  list(FILTER sources EXCLUDE REGEX "(_test|_fuzz)\\.(cc|cu)$|/testing[^/]*$")
  list(SORT sources)
  set(torch "no torch")
  if(TEMPERA_WITH_TORCH)
    file(STRINGS ${TEMPERA_TORCH}/version.py torch REGEX "^__version__")
  endif()
  list(JOIN sources "\n" lines)
  set(list ${CMAKE_CURRENT_BINARY_DIR}/build_id.txt)
  set(made ${CMAKE_CURRENT_BINARY_DIR}/build_id.cc)
  file(CONFIGURE OUTPUT ${list} CONTENT "${CMAKE_SOURCE_DIR}\n${torch}\n${lines}\n")
  set(script ${CMAKE_SOURCE_DIR}/cmake/tempera_build_id.cmake)
  list(TRANSFORM sources PREPEND ${CMAKE_SOURCE_DIR}/)
  add_custom_command(OUTPUT ${made} COMMAND ${CMAKE_COMMAND} -D LIST=${list} -D OUT=${made} -P ${script}
    DEPENDS ${sources} ${list} ${script} VERBATIM)
  tempera_library(${target} SOURCES ${made})
endfunction()
