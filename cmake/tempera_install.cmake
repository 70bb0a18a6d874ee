# What an installed program or library needs to be found, and to find what it links.

# tempera_install_rpath(TARGET): libtorch is looked for in ../lib, where someone put it there, and else where it was built with; in a
# wheel it is in the package beside ours.
function(tempera_install_rpath target)
  if(TEMPERA_WHEEL)
    set(torch "$ORIGIN/../../torch/lib")
  else()
    file(REAL_PATH ${TEMPERA_TORCH}/lib torch)
  endif()
  set_target_properties(${target} PROPERTIES INSTALL_RPATH "$ORIGIN/../lib;${torch}")
endfunction()

# Debian has no static Highway, so a wheel brings the shared one along.
function(tempera_install_highway library)
  if(TEMPERA_WHEEL AND library MATCHES "\\.so")
    execute_process(COMMAND ${CMAKE_OBJDUMP} -p ${library} OUTPUT_VARIABLE facts COMMAND_ERROR_IS_FATAL ANY)
    string(REGEX MATCH "SONAME +([^ \n]+)" found "${facts}")
    file(REAL_PATH ${library} file)
    install(FILES ${file} DESTINATION lib RENAME ${CMAKE_MATCH_1} COMPONENT runtime)
  endif()
endfunction()

# The command, and what it and the package need to know: the torch that this build is for.
function(tempera_install_command)
  file(STRINGS ${TEMPERA_TORCH}/version.py torch REGEX "^__version__")
  string(REGEX MATCH "[0-9]+\\.[0-9]+\\.[0-9]+" torch "${torch}")
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/torch.txt CONTENT "${torch}\n")
  install(FILES ${CMAKE_BINARY_DIR}/torch.txt DESTINATION . COMPONENT runtime)
  install(PROGRAMS ${CMAKE_SOURCE_DIR}/python/command.py DESTINATION ${SKBUILD_SCRIPTS_DIR} RENAME tempera COMPONENT runtime)
endfunction()
