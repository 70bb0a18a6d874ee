# The package that find_package(tempera) finds: two libraries that show nothing but our own symbols, and the public headers.

# tempera_own_symbols(TARGET)
function(tempera_own_symbols target)
  target_link_options(${target} PRIVATE -Wl,--version-script=${CMAKE_SOURCE_DIR}/cmake/exports.map)
  set_property(TARGET ${target} APPEND PROPERTY LINK_DEPENDS ${CMAKE_SOURCE_DIR}/cmake/exports.map)
endfunction()

# tempera_whole(TARGET lib ...): all of these static libraries is in the shared one, as its users may call what nothing in it does.
function(tempera_whole target)
  list(JOIN ARGN "," libraries)
  set_property(TARGET ${target} PROPERTY LINK_LIBRARY_OVERRIDE "WHOLE_ARCHIVE,${libraries}")
endfunction()

# tempera_public_headers(header ...)
function(tempera_public_headers)
  foreach(header ${ARGN})
    get_filename_component(folder ${header} DIRECTORY)
    install(FILES ${CMAKE_SOURCE_DIR}/src/${header} DESTINATION include/${folder} COMPONENT development)
  endforeach()
endfunction()

function(tempera_package)
  file(GENERATE OUTPUT ${CMAKE_BINARY_DIR}/kernels_package.cc CONTENT "")
  add_library(tempera_kernels_package SHARED ${CMAKE_BINARY_DIR}/kernels_package.cc)
  tempera_common(tempera_kernels_package)
  target_link_libraries(tempera_kernels_package PRIVATE tempera_kernels_cpu tempera_reference)
  tempera_whole(tempera_kernels_package tempera_base tempera_kernels tempera_kernels_cpu tempera_reference)
  tempera_own_symbols(tempera_kernels_package)
  set_target_properties(tempera_kernels_package PROPERTIES OUTPUT_NAME tempera_kernels EXPORT_NAME kernels
    VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
  set(targets tempera_kernels_package)
  tempera_public_headers(tempera/base/parallel.h tempera/base/version.h tempera/kernels/attention.h tempera/kernels/fused.h
    tempera/kernels/mask.h tempera/kernels/reference/attention.h tempera/kernels/validate.h)
  if(TARGET tempera_torch)
    set_target_properties(tempera_torch PROPERTIES EXPORT_NAME ops)
    list(APPEND targets tempera_torch)
    tempera_public_headers(tempera/base/error.h tempera/config/options.h tempera/config/value.h tempera/nn/attention.h
      tempera/nn/cache.h tempera/nn/config.h tempera/nn/context.h tempera/nn/inspection.h tempera/nn/layers.h tempera/nn/model.h tempera/nn/paged_cache.h
      tempera/nn/positions.h
      tempera/ops/attention.h tempera/ops/fused.h tempera/ops/projected.h tempera/ops/scale.h tempera/ops/torch.h
      tempera/temperature/method.h
      tempera/temperature/options.h tempera/temperature/register.h tempera/temperature/registry.h tempera/temperature/row_share.h tempera/temperature/rows.h
      tempera/temperature/scale.h
      tempera/temperature/shape.h tempera/temperature/state.h)
    file(STRINGS ${TEMPERA_TORCH}/version.py torch REGEX "^__version__")
    string(REGEX MATCH "[0-9]+\\.[0-9]+" tempera_torch_version "${torch}")
    file(REAL_PATH ${TEMPERA_TORCH} tempera_torch_folder)
  endif()
  foreach(target ${targets})
    set_target_properties(${target} PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "$<INSTALL_INTERFACE:include>")
    target_compile_features(${target} INTERFACE cxx_std_20)
  endforeach()
  install(TARGETS ${targets} EXPORT tempera LIBRARY DESTINATION lib COMPONENT development)
  install(EXPORT tempera NAMESPACE tempera:: DESTINATION lib/cmake/tempera FILE tempera-targets.cmake COMPONENT development)
  include(CMakePackageConfigHelpers)
  configure_package_config_file(${CMAKE_SOURCE_DIR}/cmake/tempera-config.cmake.in ${CMAKE_BINARY_DIR}/tempera-config.cmake
    INSTALL_DESTINATION lib/cmake/tempera)
  write_basic_package_version_file(${CMAKE_BINARY_DIR}/tempera-config-version.cmake COMPATIBILITY SameMinorVersion)
  install(FILES ${CMAKE_BINARY_DIR}/tempera-config.cmake ${CMAKE_BINARY_DIR}/tempera-config-version.cmake
    DESTINATION lib/cmake/tempera COMPONENT development)
endfunction()
