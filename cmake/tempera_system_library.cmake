# tempera_system_library(VARIABLE NAME): the path of a library of the system. A wheel goes to machines that lack it, so there the
# static one is taken where the system has one.
function(tempera_system_library variable name)
  if(TEMPERA_WHEEL)
    find_library(${variable} NAMES lib${name}.a ${name})
  else()
    find_library(${variable} ${name})
  endif()
endfunction()
