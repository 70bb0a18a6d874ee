# Small functions that give every target the same warnings, sanitizers, precompiled header and linker.

include(CheckCXXCompilerFlag)
include(CheckCXXSourceCompiles)
include(CheckLinkerFlag)

# The sloppiness is what ccache asks for before it keeps objects that used a precompiled header; the base folder lets
# another clone of the same sources find them too.
find_program(TEMPERA_CCACHE ccache)
if(TEMPERA_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1
    CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime ${TEMPERA_CCACHE})
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  # Without the time of writing in it, a precompiled header is the same bytes each time, and ccache knows it again.
  add_compile_options("SHELL:-Xclang -fno-pch-timestamp")
else()
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fpch-preprocess>)
endif()

# One setting for libraries and programs (CMake's own would be -fPIC here and -fPIE there): they share a precompiled
# header, and gcc refuses one that was made with the other.
add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fPIC>)

# g++ from 13 on refuses a precompiled header of -O2 in a source of -O1, which lacks these two.
set(tempera_test_options -O1)
check_cxx_compiler_flag(-munroll-only-small-loops TEMPERA_HAS_UNROLL_ONLY_SMALL_LOOPS)
if(TEMPERA_HAS_UNROLL_ONLY_SMALL_LOOPS)
  list(APPEND tempera_test_options -munroll-only-small-loops -mvzeroupper)
endif()

# The quickest linker that this compiler takes; sanitizers are linked by the ordinary one.
if(NOT TEMPERA_SANITIZE)
  check_linker_flag(CXX -fuse-ld=mold TEMPERA_HAS_MOLD)
  check_linker_flag(CXX -fuse-ld=lld TEMPERA_HAS_LLD)
  if(TEMPERA_HAS_MOLD)
    add_link_options(-fuse-ld=mold)
  elseif(TEMPERA_HAS_LLD)
    add_link_options(-fuse-ld=lld)
  endif()
endif()

add_library(tempera_warnings INTERFACE)
target_compile_options(tempera_warnings INTERFACE
  "$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wpedantic;-Wshadow;-Wconversion;-Wdouble-promotion;$<$<BOOL:${TEMPERA_WERROR}>:-Werror>>"
  "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra;$<$<BOOL:${TEMPERA_WERROR}>:-Werror=all-warnings>>")

if(TEMPERA_SANITIZE)
  add_compile_options(-fsanitize=${TEMPERA_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all -g1)
  add_link_options(-fsanitize=${TEMPERA_SANITIZE})
  # Optimising a sanitizer's checks takes longer than the tests gain by it; kernels and fuzzing are another matter.
  set(CMAKE_CXX_FLAGS_RELEASE "-O0")
  if(TEMPERA_FUZZ)
    set(CMAKE_CXX_FLAGS_RELEASE "-O1")
  endif()
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # The instrumentation hides initialisations from gcc's flow analysis; the release build keeps the warning.
    target_compile_options(tempera_warnings INTERFACE -Wno-maybe-uninitialized)
  endif()
endif()
if(TEMPERA_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()

find_package(Threads REQUIRED)

# A system's GoogleTest may need a newer standard library than an older compiler beside it has. Then its sources, which Debian
# installs with it, are compiled.
if(NOT TEMPERA_WHEEL)
  find_package(GTest REQUIRED)
  set(CMAKE_REQUIRED_LIBRARIES GTest::gtest GTest::gtest_main)
  check_cxx_source_compiles("#include <gtest/gtest.h>\nTEST(Links, WithThisCompiler) {}" TEMPERA_LINKS_GTEST)
  unset(CMAKE_REQUIRED_LIBRARIES)
  set(tempera_gtest GTest::gtest GTest::gtest_main)
  if(NOT TEMPERA_LINKS_GTEST)
    set(tempera_gtest_sources /usr/src/googletest/googletest)
    add_library(tempera_own_gtest STATIC EXCLUDE_FROM_ALL
      ${tempera_gtest_sources}/src/gtest-all.cc ${tempera_gtest_sources}/src/gtest_main.cc)
    target_include_directories(tempera_own_gtest SYSTEM PUBLIC ${tempera_gtest_sources}/include PRIVATE ${tempera_gtest_sources})
    target_link_libraries(tempera_own_gtest PUBLIC Threads::Threads)
    set(tempera_gtest tempera_own_gtest)
  endif()
endif()

if(TEMPERA_WITH_TORCH)
  # By path and not through torch's CMake package: with a CUDA wheel that package demands a CUDA toolkit. Such a wheel's
  # libraries also name CUDA libraries that the linker need not find.
  add_library(tempera_libtorch INTERFACE)
  target_include_directories(tempera_libtorch SYSTEM INTERFACE
    ${TEMPERA_TORCH}/include ${TEMPERA_TORCH}/include/torch/csrc/api/include)
  target_link_libraries(tempera_libtorch INTERFACE
    ${TEMPERA_TORCH}/lib/libtorch.so ${TEMPERA_TORCH}/lib/libtorch_cpu.so ${TEMPERA_TORCH}/lib/libc10.so)
  # Some CUDA builds of libtorch carry std::filesystem of another compiler. The standard library comes first, before all that is
  # linked, so that its own is found: with theirs, removing a folder ends the program. By path: on a machine that has only the
  # static one, -lstdc++ would give us exceptions that libtorch's do not match.
  execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=libstdc++.so.6 OUTPUT_VARIABLE tempera_stdcxx
    OUTPUT_STRIP_TRAILING_WHITESPACE)
  target_link_options(tempera_libtorch INTERFACE -Wl,--no-as-needed ${tempera_stdcxx} -Wl,--allow-shlib-undefined)

  # One precompiled ops/torch.h for every target that uses torch, made with the warnings of its users: -Wpedantic
  # changes predefined macros, and gcc refuses a header that saw others.
  file(GENERATE OUTPUT ${CMAKE_BINARY_DIR}/torch_pch.cc CONTENT "")
  add_library(tempera_torch_pch OBJECT ${CMAKE_BINARY_DIR}/torch_pch.cc)
  target_link_libraries(tempera_torch_pch PRIVATE tempera_libtorch tempera_warnings)
  # By its name in an include path: with an absolute one every clone would have a header of its own bytes, and ccache
  # would know none of the objects of another.
  target_include_directories(tempera_torch_pch PRIVATE ${CMAKE_SOURCE_DIR}/src)
  target_precompile_headers(tempera_torch_pch PRIVATE <tempera/ops/torch.h>)
endif()

if(NOT TEMPERA_WHEEL)
  # The same for the tests without torch.
  file(GENERATE OUTPUT ${CMAKE_BINARY_DIR}/gtest_pch.cc CONTENT "")
  add_library(tempera_gtest_pch OBJECT EXCLUDE_FROM_ALL ${CMAKE_BINARY_DIR}/gtest_pch.cc)
  target_link_libraries(tempera_gtest_pch PRIVATE ${tempera_gtest} tempera_warnings)
  target_precompile_headers(tempera_gtest_pch PRIVATE <gtest/gtest.h>)
endif()

function(tempera_common target)
  target_include_directories(${target} PUBLIC ${CMAKE_SOURCE_DIR}/src)
  target_link_libraries(${target} PRIVATE tempera_warnings)
endfunction()

# tempera_library(NAME [TORCH] [OBJECT] SOURCES a.cc ... [DEPS lib ...])
function(tempera_library target)
  cmake_parse_arguments(arg "TORCH;OBJECT" "" "SOURCES;DEPS" ${ARGN})
  if(arg_TORCH AND NOT TEMPERA_WITH_TORCH)
    return()
  endif()
  if(arg_OBJECT)
    add_library(${target} OBJECT ${arg_SOURCES})
  else()
    add_library(${target} STATIC ${arg_SOURCES})
  endif()
  tempera_common(${target})
  target_link_libraries(${target} PUBLIC ${arg_DEPS})
  if(arg_TORCH)
    target_link_libraries(${target} PUBLIC tempera_libtorch)
    target_precompile_headers(${target} REUSE_FROM tempera_torch_pch)
  endif()
endfunction()

# tempera_test(NAME [TORCH] SOURCES a_test.cc ... [DEPS lib ...] [LABELS ...]): a GoogleTest program, one ctest entry, built
# by the target "tests" and not by "all".
# Labels with a meaning: isa (run again with every TEMPERA_ISA by make test-long), long (left out of make test), memory (kernels
# and parsers: make test runs them with sanitizers too, and builds them by the target memory_tests).
add_custom_target(tests)
add_custom_target(memory_tests)
function(tempera_test target)
  cmake_parse_arguments(arg "TORCH" "" "SOURCES;DEPS;LABELS" ${ARGN})
  if(TEMPERA_WHEEL OR (arg_TORCH AND NOT TEMPERA_WITH_TORCH))
    return()
  endif()
  add_executable(${target} EXCLUDE_FROM_ALL ${arg_SOURCES})
  set_target_properties(${target} PROPERTIES UNITY_BUILD_BATCH_SIZE 0)  # all as one
  if(NOT TEMPERA_SANITIZE)
    # A third less of the compiler's time; what is tested has its own flags.
    target_compile_options(${target} PRIVATE ${tempera_test_options})
  endif()
  add_dependencies(tests ${target})
  tempera_common(${target})
  target_link_libraries(${target} PRIVATE ${arg_DEPS} ${tempera_gtest})
  if(arg_TORCH)
    target_link_libraries(${target} PRIVATE tempera_libtorch)
    target_precompile_headers(${target} REUSE_FROM tempera_torch_pch)
  else()
    target_precompile_headers(${target} REUSE_FROM tempera_gtest_pch)
  endif()
  add_test(NAME ${target} COMMAND ${target} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  set_tests_properties(${target} PROPERTIES LABELS "${arg_LABELS}")
  if(memory IN_LIST arg_LABELS)
    add_dependencies(memory_tests ${target})
  endif()
endfunction()

# tempera_tool(NAME [TORCH] [DEPS lib ...]): a program NAME.cc that the tests in Python run; the sanitizers have no use for it.
function(tempera_tool target)
  cmake_parse_arguments(arg "TORCH" "" "DEPS" ${ARGN})
  if(TEMPERA_SANITIZE OR arg_TORCH AND NOT TEMPERA_WITH_TORCH)
    return()
  endif()
  add_executable(${target} EXCLUDE_FROM_ALL ${target}.cc)
  add_dependencies(tests ${target})
  tempera_common(${target})
  target_link_libraries(${target} PRIVATE ${arg_DEPS})
  if(arg_TORCH)
    target_precompile_headers(${target} REUSE_FROM tempera_torch_pch)
  endif()
endfunction()

# tempera_fuzz(NAME SOURCES x_fuzz.cc ... [DEPS lib ...]): a libFuzzer program in the fuzz preset; with another sanitizer a
# program with a main() of our own. As a test it runs for TEMPERA_FUZZ_SECONDS from the files in the folder x_corpus beside
# its source, where there is one.
add_custom_target(fuzzers)
function(tempera_fuzz target)
  if(NOT TEMPERA_FUZZ AND NOT TEMPERA_SANITIZE MATCHES "address")
    return()
  endif()
  cmake_parse_arguments(arg "" "" "SOURCES;DEPS" ${ARGN})
  list(GET arg_SOURCES 0 main_source)
  string(REGEX REPLACE "_fuzz\\.cc$" "_corpus" corpus ${CMAKE_CURRENT_SOURCE_DIR}/${main_source})
  if(NOT IS_DIRECTORY ${corpus})
    set(corpus "")
  endif()
  set(found ${CMAKE_CURRENT_BINARY_DIR}/${target}_found)
  file(MAKE_DIRECTORY ${found})
  if(TEMPERA_FUZZ)
    add_executable(${target} ${arg_SOURCES})
    target_link_options(${target} PRIVATE -fsanitize=fuzzer)
    add_dependencies(fuzzers ${target})
    set(options -max_total_time=${TEMPERA_FUZZ_SECONDS} -timeout=10 -rss_limit_mb=2048 ${found} ${corpus})
  else()
    add_executable(${target} EXCLUDE_FROM_ALL ${arg_SOURCES})
    target_link_libraries(${target} PRIVATE tempera_fuzz_driver)
    add_dependencies(tests ${target})
    add_dependencies(memory_tests ${target})
    set(options ${TEMPERA_FUZZ_SECONDS} ${corpus})
  endif()
  tempera_common(${target})
  target_link_libraries(${target} PRIVATE ${arg_DEPS})
  add_test(NAME ${target} WORKING_DIRECTORY ${found} COMMAND ${target} ${options})
  set_tests_properties(${target} PROPERTIES LABELS "fuzz;memory")
endfunction()
