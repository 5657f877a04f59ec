# A room is one static library `forge_<name>` with its own include folder
# src/<name>/include, so that an include in a direction that the room does not
# declare cannot compile.
#
#   forge_room(NAME SOURCES a.cpp b.cpp [USES base quant] [LIBS fmt::fmt])
#
# Test executables, fuzz targets and benchmarks have their own functions below.

add_library(forge_options INTERFACE)
target_compile_options(forge_options INTERFACE -Wall -Wextra -ffp-contract=off)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # GCC 12 warns about its own std::string when strings are joined with + (GCC bug 105651).
  target_compile_options(forge_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict>)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  # std::stable_sort of libstdc++ 12 calls a function that it deprecates, and Clang says so; GCC tells of ours.
  target_compile_options(forge_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-deprecated-declarations>)
endif()
if(FORGE_WERROR)
  target_compile_options(forge_options INTERFACE -Werror)
endif()
if(FORGE_SANITIZE)
  string(REPLACE ";" "," _forge_san "${FORGE_SANITIZE}")
  target_compile_options(forge_options INTERFACE -fsanitize=${_forge_san} -fno-omit-frame-pointer
                         -fno-sanitize-recover=all)
  target_link_options(forge_options INTERFACE -fsanitize=${_forge_san})
endif()
if(FORGE_FUZZ)
  target_compile_options(forge_options INTERFACE -fsanitize=fuzzer-no-link)
endif()

function(forge_room name)
  cmake_parse_arguments(ARG "" "" "SOURCES;USES;LIBS" ${ARGN})
  add_library(forge_${name} STATIC ${ARG_SOURCES})
  target_include_directories(forge_${name} PUBLIC ${CMAKE_CURRENT_SOURCE_DIR}/include
                             PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
  target_link_libraries(forge_${name} PRIVATE forge_options)
  foreach(room IN LISTS ARG_USES)
    target_link_libraries(forge_${name} PUBLIC forge_${room})
  endforeach()
  target_link_libraries(forge_${name} PUBLIC ${ARG_LIBS})
endfunction()

# forge_test(base_error SOURCES error_test.cpp USES base)
# Every gtest case becomes a CTest case, named <target>.<Suite>.<Case>.
function(forge_test name)
  cmake_parse_arguments(ARG "" "" "SOURCES;USES;LIBS" ${ARGN})
  add_executable(test_${name} ${ARG_SOURCES})
  target_link_libraries(test_${name} PRIVATE forge_options GTest::gmock GTest::gtest_main ${ARG_LIBS})
  foreach(room IN LISTS ARG_USES)
    target_link_libraries(test_${name} PRIVATE forge_${room})
  endforeach()
  target_compile_definitions(test_${name} PRIVATE
    FORGE_TEST_DATA="${PROJECT_SOURCE_DIR}/tests/data"
    FORGE_SHARED_DATA="${PROJECT_SOURCE_DIR}/../shared")
  gtest_discover_tests(test_${name} TEST_PREFIX "${name}." DISCOVERY_TIMEOUT 60
                       PROPERTIES TIMEOUT 600)
endfunction()

# forge_fuzz(gguf SOURCES gguf_fuzz.cpp USES formats): a libFuzzer target; `fuzzers` builds all of them.
function(forge_fuzz name)
  cmake_parse_arguments(ARG "" "" "SOURCES;USES;LIBS" ${ARGN})
  add_executable(fuzz_${name} ${ARG_SOURCES})
  target_link_options(fuzz_${name} PRIVATE -fsanitize=fuzzer)
  target_link_libraries(fuzz_${name} PRIVATE forge_options ${ARG_LIBS})
  foreach(room IN LISTS ARG_USES)
    target_link_libraries(fuzz_${name} PRIVATE forge_${room})
  endforeach()
  if(NOT TARGET fuzzers)
    add_custom_target(fuzzers)
  endif()
  add_dependencies(fuzzers fuzz_${name})
endfunction()
