# Installs into a fresh folder, builds the examples against it in two ways and runs them on a model that
# is not there, which must end with a sentence.
set(prefix "${WORK}/prefix")
file(REMOVE_RECURSE "${WORK}")

function(run what)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "${what} failed (${status}): ${ARGN}\n${output}")
  endif()
endfunction()

function(refuses program)
  execute_process(COMMAND ${program} /no/such/model.gguf ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT status EQUAL 1 OR NOT output MATCHES "error: there is no file or folder /no/such/model.gguf")
    message(FATAL_ERROR "${program} should have said that the model is missing, but ended with ${status}: ${output}")
  endif()
endfunction()

run("installing" "${CMAKE_COMMAND}" --install "${BUILD}" --prefix "${prefix}")
foreach(path bin/forge include/forge/forge.h include/forge/forge.hpp ${LIBDIR}/pkgconfig/forge.pc
             ${LIBDIR}/cmake/forge/forgeConfig.cmake share/man/man1/forge.1)
  if(NOT EXISTS "${prefix}/${path}")
    message(FATAL_ERROR "${path} was not installed")
  endif()
endforeach()
run("the installed forge" "${prefix}/bin/forge" --version)

if(SANITIZE)
  string(REPLACE ";" "," list "${SANITIZE}")
  set(flags "-fsanitize=${list}")
endif()
run("configuring the examples" "${CMAKE_COMMAND}" -S "${SOURCE}/examples" -B "${WORK}/examples" -G "${GENERATOR}"
    "-DCMAKE_PREFIX_PATH=${prefix}" "-DCMAKE_C_COMPILER=${C_COMPILER}" "-DCMAKE_CXX_COMPILER=${CXX_COMPILER}"
    "-DCMAKE_C_FLAGS=${flags}" "-DCMAKE_CXX_FLAGS=${flags}")
run("building the examples" "${CMAKE_COMMAND}" --build "${WORK}/examples")
refuses("${WORK}/examples/chat")
refuses("${WORK}/examples/generate" "text")

find_program(pkg_config NAMES pkg-config pkgconf)
if(pkg_config)
  set(ENV{PKG_CONFIG_PATH} "${prefix}/${LIBDIR}/pkgconfig")
  execute_process(COMMAND "${pkg_config}" --define-prefix --cflags --libs forge
                  RESULT_VARIABLE status OUTPUT_VARIABLE options ERROR_VARIABLE error OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "pkg-config does not know forge: ${error}")
  endif()
  separate_arguments(options UNIX_COMMAND "${options}")
  run("building with pkg-config" "${C_COMPILER}" ${flags} "${SOURCE}/examples/generate.c" ${options}
      "-Wl,-rpath,${prefix}/${LIBDIR}" -o "${WORK}/generate-pc")
  refuses("${WORK}/generate-pc" "text")
endif()
